"""From a model to a program: the graph that the proof walks, and where its nodes stand in the source."""

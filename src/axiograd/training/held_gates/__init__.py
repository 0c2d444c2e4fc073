"""A prior without second derivatives: the training step of piecewise-linear networks with their gates held."""

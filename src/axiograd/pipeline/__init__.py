"""From inputs to results, the same for every command: samples, batches of attributions, and where they go.

`read_samples` reads what is named, `Attributor` attributes it batch by batch, `Results` writes figures, arrays and
pages of it, and `Measures` keeps its numbers. What goes to Parquet is `axiograd.scale`'s, which takes the same samples.
"""

from axiograd.pipeline.attributor import Attributor as Attributor, Batch as Batch
from axiograd.pipeline.classes import ClassNames as ClassNames
from axiograd.pipeline.measures import Measures as Measures
from axiograd.pipeline.results import Results as Results
from axiograd.pipeline.samples import Samples as Samples, read_samples as read_samples

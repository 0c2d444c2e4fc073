"""Models by their names and from files: ours, other libraries', a user's own, and what the commands wrote."""

from axiograd.loading.loaded import Loaded as Loaded, load as load

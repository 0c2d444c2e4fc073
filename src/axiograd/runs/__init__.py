"""What every run that can be resumed is made of: whole files, a lock, an identity, a progress bar."""

from axiograd.runs.files import (
    alone as alone,
    check_writable as check_writable,
    replacing as replacing,
    sync as sync,
    write_atomically as write_atomically,
    write_bytes as write_bytes,
    writing as writing,
)
from axiograd.runs.identity import (
    describe as describe,
    differences as differences,
    digest as digest,
    plain as plain,
    refuse_other as refuse_other,
    structure as structure,
    unnamed as unnamed,
)
from axiograd.runs.progress import progress_bar as progress_bar
from axiograd.runs.samples import describe_samples as describe_samples, spread as spread
from axiograd.runs.tensors import (
    file_sha256 as file_sha256,
    load_tensors as load_tensors,
    safetensors as safetensors,
    save_tensors as save_tensors,
)

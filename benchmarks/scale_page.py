"""The page of `benchmarks/scale.py`, from the numbers that it has measured."""

from __future__ import annotations

import statistics

#: Photos of ImageNet's training set, cores of a machine of the cost model, and machines.
IMAGENET, CORES, MACHINES = 1_281_167, 16, (1, 8, 64)


def page(found):
    """Tables in Markdown."""
    lines = ["# Millions of samples", "", "`python benchmarks/scale.py` with the part's name; one thread per process."]
    for name, part in found.items():
        made = part["made"]
        lines.append(f"{name}: {made['versions']}, commit {made['commit']}.  ")
    sections = {"losses": losses, "rates": rates, "workers": workers, "faults": faults}
    for name, section in sections.items():
        if name in found:
            lines += ["", *section(found[name])]
    if "rates" in found:
        lines += ["", *on_paper(found["rates"])]
    for engine in ("plain", "ray"):
        if f"memory-{engine}" in found:
            lines += ["", *memory(found[f"memory-{engine}"], engine)]
    return "\n".join(lines) + "\n"


def losses(part):
    """What each summary loses."""
    yield f"## What summaries lose: SqueezeNet 1.1, lifted, X-Gradient on {part['photos']} photos of ImageNet"
    yield ""
    yield "| summary | bytes | error of the map | correlation | error of the sum | of the share in the centre |"
    yield "|---|---|---|---|---|---|"
    for name, row in part["summaries"].items():
        cells = [
            "–" if row[key] is None else f"{row[key]:.{digits}}"
            for key, digits in (("error", "2f"), ("correlation", "2f"), ("sum", "0e"), ("centre", "3f"))
        ]
        yield f"| {name} | {row['bytes']:,.0f} | {' | '.join(cells)} |"
    yield ""
    yield "Medians over photos. Error of the map: ‖map − map that the row stands for‖ / ‖map‖, pixel by pixel;"
    yield "attributions of neighbouring pixels differ in sign: a window loses most of the pixels' energy and keeps"
    yield "where it is. The share is that of positive attribution in the middle quarter."


def median(part, name):
    """Over turns."""
    return statistics.median(turn[name] for turn in part["turns"])


def rates(part):
    """What a row costs."""
    yield f"## What a row costs: the same network, {part['photos']} photos in memory, batches of 16"
    yield ""
    yield "| | seconds per photo and core | photos per second and core | times a row's |"
    yield "|---|---|---|---|"
    names = {
        "forward": "forward pass alone",
        "forward and backward": "forward and backward pass alone",
        "forward and backward, channels first": "the same, channels first",
        "rows": "**rows: X-Gradient, summary, Parquet**",
        "Captum, one photo a call": "Captum's Integrated Gradients (50), summary: one photo a call",
        "Captum, 16 rows at once": "the same, `internal_batch_size=16`",
        "Captum, 16 rows at once, channels last": "the same, and photos channels last",
        "decoding": "decoding and cropping a photo, which either way needs",
    }
    for name, told in names.items():
        cost = median(part, name)
        ratio = statistics.median(turn[name] / turn["rows"] for turn in part["turns"])
        yield f"| {told} | {cost:.4f} | {1 / cost:.2f} | {ratio:.{0 if ratio > 10 else 2}f} |"
    best = min(statistics.median(t[n] / t["rows"] for t in part["turns"]) for n in names if n.startswith("Captum"))
    decoded = statistics.median(
        (turn["Captum, 16 rows at once, channels last"] + turn["decoding"]) / (turn["rows"] + turn["decoding"])
        for turn in part["turns"]
    )
    yield ""
    yield f"Processor time, medians of {len(part['turns'])} turns in which every way takes its turn. Rows per second"
    yield f"are {best:.0f} times those of Captum at its best, {decoded:.0f} times with decoding in both. The start (the"
    yield f"first photo, proof of the network, its hash) takes {part['start']:.1f} s once per process, and is in none."
    yield f"A row takes {part['bytes']:,.0f} bytes of Parquet."


def workers(part):
    """One process and Ray."""
    yield f"## Workers: {part['photos']} photos in parts of 32, two cores"
    yield ""
    yield "| turn | | plain | Ray, 1 worker | Ray, 2 workers | 2 workers over 1 | Ray over plain | load |"
    yield "|---|---|---|---|---|---|---|---|"
    for i, turn in enumerate(part["turns"]):
        for kind in ("wall", "processor"):
            a, b, c = (turn[key][kind] for key in ("plain", "ray 1", "ray 2"))
            load = f"{turn['load']:.1f}" if kind == "wall" else ""
            faster = f"{b / c:.2f} ×" if kind == "wall" else f"{2 * b / c:.2f} ×"
            yield f"| {i + 1} | {kind} | {a:.4f} s | {b:.4f} s | {c:.4f} s | {faster} | {b / a:.2f} | {load} |"
    yield ""
    yield "Seconds per photo in the second half of the parts; start and proof are in the first. Wall time depends"
    yield "on what else runs (load: the machine's, with ours). The ratio for processor time is what two workers would"
    yield "reach over one on two idle cores: twice the cost of a photo with one worker over its cost with two."


def on_paper(part):
    """The cost model."""
    cost = median(part, "rows") + median(part, "decoding")
    yield f"## On paper: the {IMAGENET:,} photos of ImageNet"
    yield ""
    yield "Not run. Parts share nothing but the folder, so n photos take n · s / (cores · machines), with"
    yield f"s = {median(part, 'rows'):.3f} s for the row + {median(part, 'decoding'):.3f} s for decoding; then"
    yield f"{IMAGENET * cost / 3600:.1f} core-hours, {IMAGENET * part['bytes'] / 1e9:.1f} GB of Parquet (pixels:"
    yield f"{IMAGENET * 3 * 227 * 227 * 4 / 1e9:.0f} GB). With Captum's Integrated Gradients (50) at its best"
    captum = median(part, "Captum, 16 rows at once, channels last") + median(part, "decoding")
    yield f"{IMAGENET * captum / 3600:,.0f} core-hours would be needed."
    yield ""
    yield f"| machines of {CORES} cores | time | photos per second that disk or store must deliver |"
    yield "|---|---|---|"
    for machines in MACHINES:
        seconds = IMAGENET * cost / (CORES * machines)
        told = f"{seconds / 3600:.1f} h" if seconds > 5400 else f"{seconds / 60:.0f} min"
        yield f"| {machines} | {told} | {IMAGENET / seconds:,.0f} |"


def faults(part):
    """What was killed, and what was there afterwards."""
    yield "## What goes wrong: Fashion-MNIST, 3,000 images in 47 parts"
    yield ""
    yield "| | trials | killed with so many parts written | rows each once | rows the same bits | old parts kept |"
    yield "|---|---|---|---|---|---|"
    names = {
        "worker": "one of Ray's two workers killed",
        "driver, plain": "the process killed and started again",
        "driver, ray": "the process killed and started again, two of Ray's workers",
    }
    for name, told in names.items():
        trials = [one for one in part[name] if one["killed"]]
        at = ", ".join(str(one["parts"]) for one in trials)
        counts = [sum(one[key] for one in trials) for key in ("once", "equal")]
        kept = "" if name == "worker" else str(sum(one["kept"] for one in trials))
        yield f"| {told} | {len(trials)} | {at} | {counts[0]} | {counts[1]} | {kept} |"
    yield ""
    yield f"SIGKILL, at moments drawn with the seed {part['seed']}. Compared with a plain run that nobody disturbed."
    for engine in ("plain", "ray"):
        images, disk = part[f"images, {engine}"], part[f"disk, {engine}"]
        yield ""
        yield f"Engine {engine}: of {images['files']} files {len(images['damaged'])} are damaged (empty, cut off, text,"
        same = images["rows with an error"] == images["damaged"]
        yield f"zeros inside): {'exactly those' if same else images['rows with an error']} are rows with an error, and"
        yield f"the others are the same to {images['largest difference of the others']:.0e}."
        if "skipped" in disk:
            yield f"A full disk: {disk['skipped']}."
            continue
        yield f"A disk of 2 MB: it ends with “{disk['told']}”"
        good = disk["kept"] and disk["once"] and disk["equal"]
        yield f"{disk['rows readable']:,} rows are readable; with room, the same call goes on and has"
        yield f"{'all rows, with the same bits' if good else 'OTHER ROWS'}."


def memory(part, engine):
    """Of every process that was there all the time."""
    yield f"## Memory: {part['rows']:,} images of Fashion-MNIST, engine {engine}"
    yield ""
    yield "| rows done | " + " | ".join(part["places"]) + " |"
    yield "|---|" + "---|" * len(part["places"])
    for name, values in part["mb"].items():
        yield f"| {name.rstrip('0123456789 ')}, MB | " + " | ".join(f"{value:.0f}" for value in values) + " |"
    yield ""
    yield f"Resident memory without what is shared, over {part['wall']:.0f} s."

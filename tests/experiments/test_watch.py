"""The experiment on streams, in small: what is recorded, and what the table says."""

from axiograd.experiments.item import Setting
from axiograd.experiments.records import Records
from axiograd.experiments.watch import NETWORKS, PATCHES, SHARES, networks, plan, stream, table


def test_a_stream_and_its_table(tmp_path):
    setting = Setting("quick")
    planned = plan(setting)
    todo = planned.stages[0](Records(tmp_path / "none.json", command="", data="", settings={}))
    assert len(todo) == len(NETWORKS) * (2 + len(PATCHES) * len(SHARES))
    records = Records(tmp_path / "watch.json", command="x", data=planned.data, settings=planned.settings)
    null = stream("shortcut", "", 0.0, setting)
    fed = stream("shortcut", "informative", 0.5, setting)
    records.add(networks("shortcut", setting), network="shortcut", what="accuracy")
    records.add(null, network="shortcut", what="streams", patch="none", share=0.0)
    records.add(fed, network="shortcut", what="streams", patch="informative", share=0.5)
    assert null == stream("shortcut", "", 0.0, setting)
    assert null["trials"] == 20
    # Half of the images have a patch: nobody can overlook that.
    assert fed["alarms"]["inputs"] == fed["alarms"]["attributions"] == fed["trials"]
    shown = table(records)
    assert shown.rows[1][:3] == ("shortcut", "informative", "50 %")
    assert shown.rows[1][3:5] == ("100.0", "100.0")
    assert "right on clean images" in shown.note

"""Train and classify as real Prefect flows: the same files as without Prefect, and what its page shows.

All flows are tested here, so that one process of tests starts a server, which takes ten seconds of a processor.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from httpx import ConnectError

from flows.errors import Interrupted, UsageError
from flows.orchestration.run_page import artifact_key
from tests.catalogs.web import serving
from tests.flows import verbs
from tests.lasting import output_bytes


@pytest.fixture
def work(trained: Path, tmp_path: Path) -> Path:
    for name in ("survey.parquet", "survey.fits", "spec.toml"):
        shutil.copy(trained / name, tmp_path)
    shutil.copytree(trained / "models", tmp_path / "models")
    return tmp_path


def artifacts() -> dict[str, object]:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return {a.key: a for a in client.read_artifacts() if a.key}


@pytest.mark.usefixtures("prefect_server")
def test_the_flows_do_the_same_as_the_plain_functions(work: Path) -> None:
    from prefect.client.orchestration import get_client

    from flows.classify import classify
    from flows.train import train

    state = train(work / "spec.toml", work / "flow-models", return_state=True)
    told = state.result()
    with get_client(sync_client=True) as client:  # whoever asks the server gets the result from its file
        assert client.read_flow_run(state.state_details.flow_run_id).state.result() == told
    assert (told.status, told.model) == ("trained", f"morphology@{told.version}")
    plain = Path("models/morphology") / told.version
    for name in ("model.asdf", "card.md"):
        assert (work / plain / name).read_bytes() == (Path(told.path) / name).read_bytes()

    chosen = {"model": "morphology", "store": work / "models"}
    classify([work / "survey.parquet"], out=work / "flow", **chosen)
    verbs.classify([work / "survey.parquet"], out=work / "direct", **chosen)
    for name in ("survey.parquet", "summary.json"):
        assert (work / "flow" / name).read_bytes() == (work / "direct" / name).read_bytes()

    found = artifacts()
    assert {f"morphology-{what}" for what in ("candidates", "report", "classes", "flags")} <= {*found}
    assert all(len(str(a.data)) < 200_000 for a in found.values())
    assert "log evidence" in json.loads(found["morphology-candidates"].data)[0]
    # The quality of the catalogue, as the report has it.
    assert "- Missing most: hubble " in found["morphology-report"].data
    assert "- Far outliers: jmag " in found["morphology-report"].data


@pytest.mark.usefixtures("prefect_server")
def test_one_task_holds_an_engine(work: Path) -> None:
    """And processes of this machine give the bytes that threads give."""
    pytest.importorskip("distributed")
    from prefect.client.orchestration import get_client

    from flows.classify import classify

    chosen = {"model": "morphology", "store": work / "models"}
    files = [work / "survey.parquet", work / "survey.fits"]
    state = classify(files, out=work / "engine", engine="local:1", return_state=True, **chosen)
    assert state.result().status == "done"
    verbs.classify(files, out=work / "direct", **chosen)
    for name in ("survey.parquet", "survey.fits", "summary.json"):
        assert (work / "engine" / name).read_bytes() == (work / "direct" / name).read_bytes()
    with get_client(sync_client=True) as client:
        tasks = client.read_task_runs()
    mine = [task.name for task in tasks if task.flow_run_id == state.state_details.flow_run_id]
    assert sorted(mine) == ["annotate on local:1", "publish release 1"]


@pytest.mark.usefixtures("prefect_server")
def test_catalogues_at_urls(work: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters keep URLs as they were written; those that may hold secrets are refused."""
    pytest.importorskip("aiohttp", reason="fsspec reads http with aiohttp")
    from flows.classify import classify
    from flows.reprocess import reprocess

    described = classify.parameters.model_dump_for_openapi()["properties"]["catalogues"]
    assert described["items"] == {"type": "string"}
    monkeypatch.chdir(work)
    chosen = {"model": "morphology", "store": Path("models")}
    (work / "www" / "release").mkdir(parents=True)
    for seed, name in enumerate(("a.parquet", "b.parquet", "c.parquet")):
        columns = make.survey(60, seed=seed)
        columns["name"] = np.array([f"{name}-{i}" for i in range(60)])
        make.parquet(work / "www" / "release" / name, columns)
    with serving(work / "www", ("parquet", "tagged")) as web:
        url = f"{web.url}/release"
        (work / "spec.toml").write_text(make.specification + f'\n[target]\npaths = ["{url}"]\n')
        told = classify([url], out=Path("flow"), **chosen)
        verbs.classify([url], out=Path("direct"), **chosen)
        assert told.status == "done"
        assert output_bytes(Path("flow")) == output_bytes(Path("direct"))
        told = reprocess("spec.toml", store=Path("models"), out=Path("flow"), quiet_seconds=0)
        assert told.status == "nothing to do"
        signed = f"{url}/a.parquet?X-Amz-Signature=SIGNED"
        with pytest.raises(UsageError, match="Prefect keeps and shows"):
            classify([signed], out=Path("signed"), **chosen)
        assert not Path("signed").exists()


@pytest.mark.usefixtures("prefect_server")
def test_a_failed_flow_says_what_is_wrong(work: Path) -> None:
    from flows.errors import SpecificationError
    from flows.train import train

    (work / "spec.toml").write_text((work / "spec.toml").read_text().replace("paths", "pats"))
    state = train(work / "spec.toml", work / "models", return_state=True)
    with pytest.raises(SpecificationError, match=r"catalog.pats: got an unknown key") as caught:
        state.result()
    assert (state.name, state.message) == ("Failed", str(caught.value)), "its one sentence, and nothing else"


@pytest.mark.usefixtures("prefect_server")
def test_a_server_that_goes_away_leaves_no_file_out(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not the file's fault that nobody takes the progress of its work."""
    from flows.classify import classify

    def away(*_: object, **__: object) -> None:
        raise ConnectError("[Errno 111] Connection refused")

    monkeypatch.setattr("prefect.artifacts.update_progress_artifact", away)
    monkeypatch.setattr("flows.orchestration.run_page.SECONDS_BETWEEN_UPDATES", 0)
    files = [work / "survey.parquet", work / "survey.fits"]
    told = classify(files, "morphology", work / "models", work / "out")
    assert (told.status, told.quarantined) == ("done", {})


@pytest.mark.usefixtures("prefect_server")
def test_ctrl_c_cancels_a_run(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.classify import classify

    def stopped(*_: object) -> None:
        raise Interrupted("stopped by Ctrl-C")

    monkeypatch.setattr("flows.classification.execution.annotate_each", stopped)
    state = classify([work / "survey.fits"], "morphology", work / "models", work / "out", return_state=True)
    with pytest.raises(Interrupted):
        state.result()
    assert (state.name, state.message) == ("Cancelled", "stopped by Ctrl-C")


def test_fn_needs_no_prefect_server(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.classify import classify
    from flows.train import train

    monkeypatch.setattr("flows.train._tasks", None)  # Prefect's tasks, which would ask a server
    monkeypatch.setattr("flows.classify.TASKS", None)
    assert train.fn(work / "spec.toml", work / "models").status == "exists"
    told = classify.fn([work / "survey.fits"], "morphology", work / "models", work / "out")
    assert told.status == "done"


def test_the_form_of_the_page_has_choices_bounds_and_descriptions() -> None:
    from flows.train import train

    schema = json.dumps(train.parameters.model_dump())
    assert '"enum": ["evidence", "bic", "loo", "average", "stack"]' in schema
    assert "Share of the rows that no fit sees" in schema
    assert '"exclusiveMaximum": 0.9' in schema
    assert "Folder of the model store." in schema


def test_keys_of_artifacts() -> None:
    assert artifact_key("Five_class.v2-Report") == "five-class-v2-report"
    assert artifact_key("…") == "blr"

# SPDX-License-Identifier: MIT OR Apache-2.0
"""docs/deploy.md: its snippets are parsed, and run where this machine allows it."""

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ebbtide_lab.base.layout import find_root

ROOT = find_root()
TEXT = (ROOT / "docs" / "deploy.md").read_text()
INSTALLED = "/usr/local/lib/libebbtide.so.0"
LIBRARY = ROOT / "build" / "release" / "libebbtide.so.0"
INSTRUCTIONS = {"FROM", "RUN", "COPY", "ENV", "CMD", "ENTRYPOINT", "USER", "WORKDIR"}


def snippets(language: str, text: str = TEXT) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def docker_faults(text: str) -> list[str]:
    """Instructions that there are none of, stages that are not named, broken JSON forms."""
    faults, stages = [], set()
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word not in INSTRUCTIONS or not rest:
            faults.append(line)
        if named := re.search(r" AS (\S+)$", rest):
            stages.add(named[1])
        if (source := re.match(r"--from=(\S+)", rest)) and source[1] not in stages:
            faults.append(line)
        if word in ("CMD", "ENTRYPOINT") and not re.fullmatch(r'\["[^"]+"(, "[^"]+")*\]', rest):
            faults.append(line)
    return faults


def pod_faults(deployment: dict[str, Any]) -> list[str]:
    """What the API server would refuse, and a library that is not where it is looked for."""
    faults = []
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    if deployment["spec"]["selector"]["matchLabels"] != labels:
        faults.append("the selector does not match the labels")
    pod = deployment["spec"]["template"]["spec"]
    volumes = {each["name"] for each in pod["volumes"]}
    [init], [main] = pod["initContainers"], pod["containers"]
    for container in (init, main):
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        if not set(mounts) <= volumes:
            faults.append(f"{container['name']} mounts what is no volume")
    [preload] = [each["value"] for each in main["env"] if each["name"] == "LD_PRELOAD"]
    if preload != init["command"][-1]:
        faults.append("the library is copied to another place")
    return faults


def test_the_image_is_described_well() -> None:
    [text] = snippets("dockerfile")
    assert docker_faults(text) == []
    assert f"ENV LD_PRELOAD={INSTALLED}" in text
    assert "make -C /src install PREFIX=/usr/local" in text
    wrong = ["COPY --from=b /x /y", "RUNN x", "CMD [x"]
    assert docker_faults("\n".join(["FROM a", *wrong])) == wrong


def test_the_drop_in_is_read_by_systemd(tmp_path: Path) -> None:
    [text] = snippets("ini")
    parsed = configparser.ConfigParser()
    parsed.read_string(text)
    assert parsed["Service"]["Environment"] == f"LD_PRELOAD={INSTALLED}"
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here: the drop-in was parsed alone")
    assert verified(tmp_path / "right", text) == ""
    assert "Enviroment" in verified(tmp_path / "wrong", text.replace("Environment", "Enviroment"))


def verified(folder: Path, drop_in: str) -> str:
    """What systemd says of a unit with this drop-in, as far as the drop-in is meant."""
    place = folder / "your-server.service.d"
    place.mkdir(parents=True)
    (place / "ebbtide.conf").write_text(drop_in)
    unit = folder / "your-server.service"
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    environment = {**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:"}
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return "\n".join(line for line in done.stderr.splitlines() if "ebbtide.conf" in line)


def test_the_deployment_is_whole() -> None:
    [text] = snippets("yaml")
    deployment = yaml.safe_load(text)
    assert deployment["kind"] == "Deployment"
    assert pod_faults(deployment) == []
    wrong = yaml.safe_load(text.replace("value: /ebbtide/", "value: /elsewhere/"))
    assert pod_faults(wrong) == ["the library is copied to another place"]


def test_the_profile_lets_the_library_be_mapped() -> None:
    [rule] = snippets("text")
    assert re.fullmatch(r"/\S+\* mr,\n", rule)


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    script = script.replace(INSTALLED, str(LIBRARY))
    return subprocess.run(
        ["sh", "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(not LIBRARY.is_file(), reason="the library is not built")
def test_the_proofs_tell_the_library_from_its_absence() -> None:
    mapped, statistics = snippets("sh")
    with_it = subprocess.Popen(["sleep", "60"], env={**os.environ, "LD_PRELOAD": str(LIBRARY)})
    without = subprocess.Popen(["sleep", "60"])
    try:
        for each in (with_it, without):
            while not re.search(
                r"/sleep\n(.*\n)*.*libc\.so", Path(f"/proc/{each.pid}/maps").read_text()
            ):
                assert each.poll() is None
        found = [run(mapped, PID=str(each.pid)).stdout for each in (with_it, without)]
    finally:
        for each in (with_it, without):
            each.kill()
            each.wait()
    assert int(found[0]) > 0
    assert found[1] == "0\nEbbtide is not loaded\n"
    assert "resident in all" in run(statistics).stderr
    absent = run(statistics.replace(INSTALLED, "/nowhere.so"))
    assert "resident in all" not in absent.stderr
    assert "cannot be preloaded" in absent.stderr
    assert absent.returncode == 0


def test_the_options_that_are_named_exist() -> None:
    defined = set(re.findall(r'"(EBB_\w+)"', (ROOT / "src/os/options.def").read_text()))
    assert set(re.findall(r"\bEBB_[A-Z_]+", TEXT)) <= defined

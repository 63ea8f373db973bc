"""As much of kustomize as deploy/kubernetes uses, so that its files are tested without a program to install.

What it renders is what `kubectl kustomize` does, but for the digests behind the names of generated objects.
A field of a kustomization that it does not know is an error.
"""

import base64
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

#: Kind, name: an object of a cluster. All are of one namespace.
Objects = dict[tuple[str, str], dict[str, Any]]

#: By what entries of a list are told apart when two lists are merged; others are replaced.
_KEYS = ("name", "mountPath", "containerPort")

#: Objects that are of no namespace.
_OF_THE_CLUSTER = ("Namespace",)


def rendered(folder: Path) -> Objects:
    """Render a kustomization."""
    file = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))
    objects: Objects = {}
    assert (file.pop("apiVersion"), file.pop("kind")) == ("kustomize.config.k8s.io/v1beta1", "Kustomization")
    for name in file.pop("resources"):
        found = rendered(folder / name) if (folder / name).is_dir() else _read(folder / name)
        assert not objects.keys() & found.keys()
        objects |= found
    for kind in ("ConfigMap", "Secret"):
        for entry in file.pop(f"{kind[0].lower()}{kind[1:]}Generator", []):
            _generate(objects, kind, entry, folder)
    for patch in file.pop("patches", []):
        _patch(objects, patch, folder)
    namespace, images = file.pop("namespace", None), file.pop("images", [])
    labels = {name: text for entry in file.pop("labels", []) for name, text in entry["pairs"].items()}
    assert not file, f"not known here: {', '.join(file)}"
    for (kind, _), each in objects.items():
        metadata = each["metadata"]
        metadata.setdefault("labels", {}).update(labels)
        if namespace and kind not in _OF_THE_CLUSTER:
            metadata["namespace"] = namespace
        for container in _containers(each):
            for image in images:
                if container["image"] == image["name"]:
                    container["image"] += f":{image['newTag']}"
    return objects


def _containers(each: dict[str, Any]) -> list[dict[str, Any]]:
    spec = each.get("spec", {})
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    containers: list[dict[str, Any]] = spec.get("template", {}).get("spec", {}).get("containers", [])
    return containers


def _read(file: Path) -> Objects:
    found = [each for each in yaml.safe_load_all(file.read_text("utf-8")) if each]
    # A copy for each place that an anchor is used in: what is changed in one is not changed in all.
    return {(each["kind"], each["metadata"]["name"]): _unshared(each) for each in found}


def _unshared(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unshared(each) for name, each in value.items()}
    return [_unshared(each) for each in value] if isinstance(value, list) else value


def _generate(objects: Objects, kind: str, entry: dict[str, Any], folder: Path) -> None:
    data = dict(literal.split("=", 1) for literal in entry.get("literals", []))
    for name in entry.get("files", []):
        text = (folder / name).read_bytes()
        data[Path(name).name] = base64.b64encode(text).decode() if kind == "Secret" else text.decode()
    key = (kind, entry["name"])
    assert (key in objects) is (entry.get("behavior") == "merge"), key
    made = objects.setdefault(
        key, {"apiVersion": "v1", "kind": kind, "metadata": {"name": entry["name"]}, "data": {}}
    )
    made["data"].update(data)
    if kind == "Secret":
        made["type"] = "Opaque"


def _patch(objects: Objects, patch: dict[str, Any], folder: Path) -> None:
    if "path" in patch:
        for key, each in _read(folder / patch["path"]).items():
            objects[key] = _merged(objects[key], each)
        return
    each = objects[patch["target"]["kind"], patch["target"]["name"]]
    for step in yaml.safe_load(patch["patch"]):
        *way, last = step["path"].strip("/").split("/")
        for name in way:
            each = each[name]
        assert step["op"] == "remove"
        del each[last]


def _merged(below: Any, above: Any) -> Any:
    if isinstance(below, dict) and isinstance(above, dict):
        more = {name: _merged(below[name], each) if name in below else each for name, each in above.items()}
        return {**below, **more}
    if isinstance(below, list) and isinstance(above, list):
        for key in _KEYS:
            if all(isinstance(each, dict) and key in each for each in (*below, *above)):
                known = {each[key]: each for each in below}
                # Those of the patch come first, as kustomize has it.
                new = {each[key]: _merged(known.get(each[key], {}), each) for each in above}
                return [*new.values(), *(each for name, each in known.items() if name not in new)]
    return deepcopy(above)

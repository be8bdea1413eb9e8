"""The Python client as operators' scripts use it: typed and custom objects, patches, lists in chunks, watches, the dynamic
client, Server-Side Apply. Ends with a non-zero code at the first surprise. Argument: a kubeconfig."""

import sys

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException

GROUP, VERSION, PLURAL = "example.com", "v1", "widgets"


def refused(status, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except ApiException as error:
        assert error.status == status, (error.status, error.body)
        return error.body
    raise AssertionError(f"{call} was not refused")


def core(api):
    v1 = client.CoreV1Api(api)
    assert {n.metadata.name for n in v1.list_namespace().items} >= {"default", "kube-system"}
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="py", labels={"app": "py"}), data={"a": "1"})
    made = v1.create_namespaced_config_map("default", body)
    assert made.metadata.uid and made.data == {"a": "1"}
    refused(409, v1.create_namespaced_config_map, "default", body)
    made.data["b"] = "2"
    changed = v1.replace_namespaced_config_map("py", "default", made)
    assert changed.metadata.resource_version != made.metadata.resource_version
    refused(409, v1.replace_namespaced_config_map, "py", "default", made)
    patched = v1.patch_namespaced_config_map("py", "default", {"data": {"a": None, "c": "3"}})
    assert patched.data == {"b": "2", "c": "3"}
    patched = v1.patch_namespaced_config_map("py", "default", [{"op": "remove", "path": "/data/b"}])
    assert patched.data == {"c": "3"}
    assert [c.metadata.name for c in v1.list_namespaced_config_map("default", label_selector="app=py").items] == ["py"]
    gone = v1.delete_namespaced_config_map("py", "default", propagation_policy="Background")
    assert gone.status == "Success"
    refused(404, v1.read_namespaced_config_map, "py", "default")


def custom(api):
    objects = client.CustomObjectsApi(api)
    for name, size in (("w1", 1), ("w2", 2), ("w3", 3)):
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": size}}
        objects.create_namespaced_custom_object(GROUP, VERSION, "default", PLURAL, body)
    bad = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Widget", "metadata": {"name": "bad"}, "spec": {"size": "x"}}
    text = refused(422, objects.create_namespaced_custom_object, GROUP, VERSION, "default", PLURAL, bad)
    assert "spec.size in body must be of type integer" in text, text
    first = objects.list_namespaced_custom_object(GROUP, VERSION, "default", PLURAL, limit=2)
    assert len(first["items"]) == 2
    token = first["metadata"]["continue"]
    rest = objects.list_namespaced_custom_object(GROUP, VERSION, "default", PLURAL, limit=2, _continue=token)
    assert [i["metadata"]["name"] for i in rest["items"]] == ["w3"]
    objects.patch_namespaced_custom_object(GROUP, VERSION, "default", PLURAL, "w1", {"spec": {"size": 9}})
    start = first["metadata"]["resourceVersion"]
    seen = []
    stream = watch.Watch()
    for event in stream.stream(
        objects.list_namespaced_custom_object, GROUP, VERSION, "default", PLURAL, resource_version=start, timeout_seconds=30
    ):
        seen.append((event["type"], event["object"]["metadata"]["name"]))
        if event["type"] == "MODIFIED":
            objects.delete_namespaced_custom_object(GROUP, VERSION, "default", PLURAL, "w2")
        if event["type"] == "DELETED":
            stream.stop()
    assert seen == [("MODIFIED", "w1"), ("DELETED", "w2")], seen


def dynamically(api):
    everything = dynamic.DynamicClient(api)
    widgets = everything.resources.get(api_version=f"{GROUP}/{VERSION}", kind="Widget")
    assert widgets.namespaced and widgets.name == PLURAL
    applied = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Widget", "metadata": {"name": "w1"}, "spec": {"size": 9}}
    assert widgets.get(name="w1", namespace="default").spec.size == 9
    changed = widgets.patch(
        body={"metadata": {"labels": {"x": "y"}}}, name="w1", namespace="default", content_type="application/merge-patch+json"
    )
    assert changed.metadata.labels["x"] == "y"
    assert applied["metadata"]["name"] in [w.metadata.name for w in widgets.get(namespace="default").items]
    same = widgets.server_side_apply(body=applied, name="w1", namespace="default", field_manager="script")
    assert "script" in [m.manager for m in same.metadata.managedFields]
    applied["spec"]["size"] = 10
    try:
        widgets.server_side_apply(body=applied, name="w1", namespace="default", field_manager="script")
        raise AssertionError("a field of two managers was changed by one")
    except dynamic.exceptions.ConflictError as error:
        assert b".spec.size" in error.body, error.body
    forced = widgets.server_side_apply(
        body=applied, name="w1", namespace="default", field_manager="script", force_conflicts=True
    )
    assert forced.spec.size == 10
    widgets.delete(name="w1", namespace="default")
    maps = everything.resources.get(api_version="v1", kind="ConfigMap")
    made = maps.create(body={"metadata": {"generateName": "dyn-"}, "data": {"k": "v"}}, namespace="default")
    assert made.metadata.name.startswith("dyn-") and len(made.metadata.name) == 9


def main():
    api = config.new_client_from_config(sys.argv[1])
    assert client.VersionApi(api).get_code().git_version.startswith("v1.")
    core(api)
    custom(api)
    dynamically(api)
    print("good")


main()

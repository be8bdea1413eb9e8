"""Writes one image to a disk as ironic-python-agent does, by its own code, and prints the seconds that took.

    write-image.py URL raw|qcow2 SHA256 DEVICE

A raw image is streamed onto the disk (`_stream_raw_image_onto_device`), another is fetched into the folder for temporary files, which is memory in a
ramdisk, and converted by qemu-img (`_cache_and_write_image`), as `standby.prepare_image` chooses with Ironic's default `stream_raw_images`. The
time ends when the disk has all of it. Left out are the waits for udev and for other users of the disk, which write nothing, and the search for
partitions, which an image of noise has none of.
"""

import json
import os
import sys
import time

from oslo_config import cfg

from ironic_python_agent import config  # noqa: F401: defines the options
from ironic_python_agent import disk_utils
from ironic_python_agent.extensions import standby


def main(url, form, digest, device):
    cfg.CONF([], project="ironic-python-agent", default_config_files=[])
    disk_utils.udev_settle = lambda: True
    disk_utils.partprobe = lambda *_, **__: True
    disk_utils.wait_for_disk_to_become_available = lambda _: None
    disk_utils.fix_gpt_partition = lambda *_, **__: None
    disk_utils.block_uuid = lambda _: ""
    image = {
        "id": "image",
        "urls": [url],
        "os_hash_algo": "sha256",
        "os_hash_value": digest,
        "disk_format": form,
        "image_type": "whole-disk",
    }
    agent = standby.StandbyExtension()
    agent.partition_uuids = {}
    began = time.monotonic()
    if form == "raw":
        agent._stream_raw_image_onto_device(image, device)
    else:
        agent._cache_and_write_image(image, device)
    disk = os.open(device, os.O_RDONLY)
    os.fsync(disk)
    seconds = time.monotonic() - began
    os.close(disk)
    json.dump({"seconds": seconds}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])

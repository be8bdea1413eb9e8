"""A hardware manager as a vendor would bring one, for machines that emulate it: the steps that tests ask for by name.

Nothing here is run unless it is asked for: the priority of each step is 0.
"""

from ironic_python_agent import errors
from ironic_python_agent import hardware

# Where on a disk a label is put: so many bytes from its end, before what GPT has there.
FROM_THE_END = 1024 * 1024
LONGEST = 64


class AcmeHardwareManager(hardware.HardwareManager):
    HARDWARE_MANAGER_NAME = "AcmeHardwareManager"
    HARDWARE_MANAGER_VERSION = "1.2"

    def evaluate_hardware_support(self):
        return hardware.HardwareSupport.SERVICE_PROVIDER

    def get_clean_steps(self, node, ports):
        return [
            {
                "step": "label_disks",
                "priority": 0,
                "interface": "management",
                "reboot_requested": False,
                "abortable": False,
                "argsinfo": {
                    "label": {"description": "What is written near each disk's end.", "required": True},
                },
            },
            {
                "step": "check_backplane",
                "priority": 0,
                "interface": "deploy",
                "reboot_requested": False,
                "abortable": False,
            },
        ]

    def label_disks(self, node, ports, label):
        data = label.encode()
        if not data or len(data) > LONGEST:
            raise errors.CleaningError(f"a label has 1 to {LONGEST} bytes")
        disks = hardware.dispatch_to_managers("list_block_devices")
        for disk in disks:
            with open(disk.name, "r+b") as device:
                device.seek(disk.size - FROM_THE_END)
                device.write(data)
        return [disk.name for disk in disks]

    def check_backplane(self, node, ports):
        raise errors.CleaningError("slot 3 of the backplane does not answer")

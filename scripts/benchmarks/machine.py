"""What figures were measured on, in a line."""

from mt_cli.config import Device

FACTS = ("processor", "cpu", "amx", "cores", "device", "gpu", "threads", "training in", "torch")


def machine(device: Device, threads: int) -> str:
    """The machine, and the precision that training chooses there."""
    from mt_cli.machine.device import describe_machine, set_up_runtime

    facts = describe_machine(set_up_runtime(device=device, threads=threads))
    facts["training in"] = facts.pop("precision")
    return ", ".join(f"{name} {facts[name]}" for name in FACTS if name in facts)

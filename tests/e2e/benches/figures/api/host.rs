//! Hosts as they are after inspection: 10 KB of JSON each, with the owners of their fields.

use serde_json::{Value, json};

/// Name of a host.
pub fn name(index: usize) -> String {
    format!("host-{index:05}")
}

/// Bodies of requests with a place for what differs: made once, so that the client has little to do.
pub struct Bodies {
    create: String,
    status: String,
    apply: String,
}

/// Hosts of a rack, in a hundred racks.
pub fn rack(index: usize) -> String {
    format!("rack-{:02}", index % 100)
}

/// Stands in bodies where a host's name goes.
const NAME: &str = "HOST-NAME";
/// Stands in bodies where a host's rack goes.
const RACK: &str = "HOST-RACK";
/// Stands in bodies where a number goes.
const NUMBER: &str = "731731731";

impl Bodies {
    /// All of them.
    pub fn new() -> Self {
        let identity = |rest: Value| {
            let mut host =
                json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": NAME}});
            if let (Some(host), Value::Object(rest)) = (host.as_object_mut(), rest) {
                host.extend(rest);
            }
            host
        };
        let mut create = identity(json!({"spec": spec(), "status": status()}));
        create["metadata"]["labels"] = json!({"rack": RACK, "cluster.x-k8s.io/cluster-name": "edge-12"});
        create["metadata"]["annotations"] = json!({"example.com/asset": "A-4711-0815"});
        create["metadata"]["finalizers"] = json!(["baremetalhost.metal3.io"]);
        let apply = identity(json!({"spec": {"online": true, "description": NUMBER, "image": spec()["image"],
            "rootDeviceHints": {"deviceName": "/dev/disk/by-path/pci-0000:3b:00.0-nvme-1", "minSizeGigabytes": 400}}}));
        Self { create: create.to_string(), status: json!({"status": status()}).to_string(), apply: apply.to_string() }
    }

    /// A whole host, for a create. What it says of its status is read and checked, and dropped by both servers.
    pub fn create(&self, index: usize) -> String {
        self.create.replace(NAME, &name(index)).replace(RACK, &rack(index))
    }

    /// A merge patch of the status: what inspection found. `number` makes each different.
    pub fn status(&self, number: usize) -> String {
        self.status.replace(NUMBER, &number.to_string())
    }

    /// What a second manager wants of a host, for server-side apply.
    pub fn apply(&self, index: usize, number: usize) -> String {
        self.apply.replace(NAME, &name(index)).replace(NUMBER, &number.to_string())
    }

    /// Bytes of a host's body.
    pub fn size(&self) -> usize {
        self.create.len()
    }
}

fn spec() -> Value {
    json!({"online": true, "bootMode": "UEFI", "bootMACAddress": "52:54:00:ab:cd:01", "architecture": "x86_64",
        "automatedCleaningMode": "metadata", "inspectionMode": "agent",
        "bmc": {"address": "redfish-virtualmedia+https://192.0.2.17/redfish/v1/Systems/System.Embedded.1",
            "credentialsName": "bmc-secret", "disableCertificateVerification": true},
        "image": {"url": "https://images.example.com/debian-12-generic-amd64.qcow2", "format": "qcow2",
            "checksum": "https://images.example.com/SHA256SUMS", "checksumType": "sha256"},
        "rootDeviceHints": {"deviceName": "/dev/disk/by-path/pci-0000:3b:00.0-nvme-1"},
        "userData": {"name": "user-data", "namespace": "default"},
        "networkData": {"name": "network-data", "namespace": "default"}})
}

fn status() -> Value {
    let done = json!({"start": "2026-03-01T10:00:00Z", "end": "2026-03-01T10:02:11Z"});
    let conditions = ["Ready", "Available", "Inspected", "Healthy"].map(condition).to_vec();
    json!({"errorCount": 0, "errorMessage": NUMBER, "hardwareProfile": "unknown", "lastUpdated": "2026-03-01T10:04:00Z",
        "operationalStatus": "OK", "poweredOn": true, "provisioningFailCount": 0,
        "conditions": conditions,
        "goodCredentials": {"credentials": {"name": "bmc-secret", "namespace": "default"}, "credentialsVersion": "4711"},
        "triedCredentials": {"credentials": {"name": "bmc-secret", "namespace": "default"}, "credentialsVersion": "4711"},
        "operationHistory": {"register": done, "inspect": done, "provision": done},
        "provisioning": {"ID": "6f1f3ab2-6f0f-4b7a-9d55-2f1f0a7a3d10", "state": "provisioned", "bootMode": "UEFI",
            "image": spec()["image"], "rootDeviceHints": spec()["rootDeviceHints"]},
        "hardware": hardware()})
}

fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": "AsExpected", "message": "the host is as it should be",
        "observedGeneration": 3, "lastTransitionTime": "2026-03-01T10:02:11Z"})
}

fn hardware() -> Value {
    let nic = |at: usize| {
        json!({"name": format!("enp{at}s0f0np0"), "mac": format!("52:54:00:ab:cd:{at:02x}"), "ip": format!("198.51.100.{at}"),
            "model": "0x8086 0x1593", "speedGbps": 25, "pxe": at == 1, "vlanId": 0, "pciAddress": format!("0000:{at:02x}:00.0"),
            "lldp": {"portID": format!("Ethernet1/{at}"), "switchID": "00:1c:73:aa:bb:cc", "switchSystemName": "leaf-17a"}})
    };
    let disk = |at: usize| {
        json!({"name": format!("/dev/disk/by-path/pci-0000:3b:00.0-nvme-{at}"), "type": "NVME", "rotational": false,
            "alternateNames": [format!("/dev/nvme{at}n1"), format!("/dev/disk/by-id/nvme-eui.0025385{at:09}")],
            "model": "SAMSUNG MZQL23T8HCLS-00A07", "vendor": "Samsung", "sizeBytes": 3_840_755_982_336_u64,
            "serialNumber": format!("S64HNE0T{at:06}"), "wwn": format!("eui.0025385{at:09}"), "hctl": format!("{at}:0:0:0")})
    };
    json!({"hostname": "node-17.example.com", "ramMebibytes": 524_288,
        "systemVendor": {"manufacturer": "Dell Inc.", "productName": "PowerEdge R660 (SKU=0A6B)", "serialNumber": "7XK2LM3"},
        "firmware": {"bios": {"date": "11/04/2025", "vendor": "Dell Inc.", "version": "2.4.4"}},
        "cpu": {"arch": "x86_64", "model": "Intel(R) Xeon(R) Gold 6448Y", "count": 128, "clockMegahertz": 4100,
            "flags": FLAGS.split(' ').collect::<Vec<_>>()},
        "nics": (1..=8).map(nic).collect::<Vec<_>>(), "storage": (1..=10).map(disk).collect::<Vec<_>>()})
}

/// Features of a server's processor, as Linux names them.
const FLAGS: &str = "acpi adx aes amx_bf16 amx_int8 amx_tile aperfmperf apic arat arch_capabilities arch_lbr arch_perfmon art \
    avx avx2 avx512_bf16 avx512_bitalg avx512_fp16 avx512_vbmi2 avx512_vnni avx512_vpopcntdq avx512bw avx512cd avx512dq \
    avx512f avx512ifma avx512vbmi avx512vl avx_vnni bmi1 bmi2 bts bus_lock_detect cat_l2 cat_l3 cdp_l2 cdp_l3 cldemote \
    clflush clflushopt clwb cmov constant_tsc cpuid cqm cqm_llc cqm_mbm_local cqm_mbm_total cqm_occup_llc cx16 cx8 dca de \
    ds_cpl dtes64 dtherm dts enqcmd epb ept ept_ad erms est f16c flexpriority flush_l1d fma fpu fsgsbase fsrm fxsr gfni hfi \
    ht hwp hwp_act_window hwp_epp hwp_pkg_req ibpb ibrs ibrs_enhanced ibt ida intel_pt invpcid la57 lahf_lm lm mba mca mce";

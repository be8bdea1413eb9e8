//! Types of the resources that the simulator makes itself (`ill`): the metadata names them beside the recorded ones.

/// Type of power supplies.
pub const SUPPLY_TYPE: &str = "#PowerSupply.v1_5_0.PowerSupply";
/// Type of fans.
pub const FAN_TYPE: &str = "#Fan.v1_5_0.Fan";
/// Type of storage subsystems.
pub const STORAGE_TYPE: &str = "#Storage.v1_15_0.Storage";
/// Type of their controllers.
pub const CONTROLLER_TYPE: &str = "#StorageController.v1_7_0.StorageController";
/// Type of disks.
pub const DRIVE_TYPE: &str = "#Drive.v1_17_0.Drive";
/// Type of network cards.
pub const ADAPTER_TYPE: &str = "#NetworkAdapter.v1_9_0.NetworkAdapter";
/// Type of their ports.
pub const PORT_TYPE: &str = "#Port.v1_9_0.Port";
/// Type of the counters of memory modules.
pub const METRICS_TYPE: &str = "#MemoryMetrics.v1_7_0.MemoryMetrics";
/// Type of message registries.
pub const REGISTRY_TYPE: &str = "#MessageRegistry.v1_6_0.MessageRegistry";

/// All of them, with their collections.
pub const TYPES: [&str; 15] = [
    "#PowerSupplyCollection.PowerSupplyCollection",
    "#FanCollection.FanCollection",
    "#StorageCollection.StorageCollection",
    "#StorageControllerCollection.StorageControllerCollection",
    "#NetworkAdapterCollection.NetworkAdapterCollection",
    "#PortCollection.PortCollection",
    SUPPLY_TYPE,
    FAN_TYPE,
    STORAGE_TYPE,
    CONTROLLER_TYPE,
    DRIVE_TYPE,
    ADAPTER_TYPE,
    PORT_TYPE,
    METRICS_TYPE,
    REGISTRY_TYPE,
];

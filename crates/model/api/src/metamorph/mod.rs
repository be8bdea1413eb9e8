//! `metamorph.metal3.io/v1alpha1`: kinds that Metal³ lacks.

mod agent_steps;
mod host_class;
mod host_diagnosis;
mod host_discovery;
mod host_operation;
mod machine_record;

pub use agent_steps::{
    AgentStep, HardwareManager, MAX_ASKED_STEPS, MAX_STEP_ARGUMENTS, OfferedStep, RanStep, StepArgument, StepResult,
    StepsReport,
};
pub use host_class::{
    ErroredHost, HostClass, HostClassCondition, HostClassMode, HostClassResult, HostClassRule, HostClassSpec,
    HostClassStatus, LabelConflict, PreviewedHost, RuleVerdict, UnmatchedHost,
};
pub use host_diagnosis::{
    Acknowledgement, DiagnosedCause, DiagnosedPart, DiagnosisPhase, HostDiagnosis, HostDiagnosisSpec,
    HostDiagnosisStatus, UnreadSource,
};
pub use host_discovery::{
    BmcClaimant, DiscoveredMachine, DiscoveryAfterwards, DiscoveryApproval, DiscoveryMedium, DiscoveryMediumAt,
    DiscoveryNaming, DiscoveryPhase, DiscoveryScan, DiscoveryScheme, HostDiscovery, HostDiscoverySpec,
    HostDiscoveryStatus, MAX_ADDRESSES, MAX_CLAIMANTS, MAX_MACHINE_BYTES, MAX_MACHINES, MAX_RANGES, MAX_REPORT_BYTES,
    MAX_REPORTS, MAX_RULE, MAX_RULES, NamedFrom, ReportOutcome, ReportedMachine,
};
pub use host_operation::{
    AgentBoot, CollectedLog, DiagnoseOptions, EraseOptions, Erasure, HostOperation, HostOperationSpec,
    HostOperationStatus, HostReference, LocateOptions, OperationError, OperationImage, OperationPhase, OperationStep,
    OperationType, RebootMode, RebootOptions, StepPhase, TestMediumReport, TestMediumResult, WorkBefore,
};
pub use machine_record::{AcceptedMachine, MachineRecord, MachineRecordSpec, ProvisionerRecord, RecordSeal};

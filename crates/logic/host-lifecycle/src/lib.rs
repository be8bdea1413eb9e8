//! The BareMetalHost state machine: pure, one file a state.
//!
//! [`decide`] looks at a host and says what to do next: one call of the provisioner, or one change of the object. What the
//! provisioner answers goes into [`conclude`], which says what to write. Neither does any IO, neither knows the time but by being
//! told. Nothing is remembered between calls: whatever matters stands in the object.
//!
//! States, transitions, errors and retries are those of Metal³'s baremetal-operator (`host_state_machine.go`,
//! `baremetalhost_controller.go`); where this machine departs from it, the state's file says so and why.
//!
//! ```text
//! decide ─┬─ Act(action) ──▶ provisioner ──▶ conclude ──▶ Change
//!         └─ Change
//! ```

mod access;
mod admission;
mod annotation_keys;
mod annotations;
mod asked_steps;
mod attachment;
mod beside;
mod boot_image;
mod boot_mac;
mod budget;
mod children;
mod collecting;
mod conditions;
mod data_image;
mod decide;
mod detach;
mod diagnosis;
mod draft;
mod firmware;
mod handler;
mod held;
mod host_rules;
mod orders;
mod owned;
mod power;
mod power_wish;
mod prelude;
mod request_age;
mod request_spec;
mod request_view;
mod requests;
mod retry;
mod served;
mod servicing;
mod settings_schema;
mod standing;
mod states;
mod steady;
mod step;
mod targets;
mod test_medium;
mod told;
mod transitions;
mod view;
mod wishes;

pub use access::is_new_here;
pub use admission::{Review, review};
pub use annotations::{detached_by_force, inspection_disabled, is_reboot_forced};
pub use beside::{Beside, references, review_beside};
pub use budget::{
    ERASING as ERASING_BUDGET, REASON as BUDGET_EXCEEDED, SERVICING as SERVICING_BUDGET, STEPPING as STEPPING_BUDGET,
    budget, is_being_erased, runs_steps, spent,
};
pub use children::{ChildWrite, Children};
pub use collecting::{Collected, conclude_collection, conclude_waiting};
pub use conditions::renew_conditions;
pub use decide::{conclude, decide};
pub use firmware::is_taken as is_firmware_taken;
pub use host_rules::{Violation, validate};
pub use orders::{FirmwareFacts, FirmwareSetting, RaidTarget, SettingsTarget, Targets};
pub use request_view::{
    Answer, RequestStep, RequestView, answered, is_live, is_name, is_request, is_unasked, mark, named,
};
pub use requests::{decide_request, erase_of, is_rebuild_of, steps_of};
pub use retry::back_off;
pub use served::Served;
pub use settings_schema::text as setting_text;
pub use standing::{Standing, standing};
pub use step::{Action, Change, HostEvent, Next, Outcome, Step};
pub use terms::{HealthLevel, PowerWish, Retry};
pub use test_medium::asks_for_test;
pub use told::late_event;
pub use transitions::diagram;
pub use view::{Credentials, HealthHeard, Heard, Settings, View, is_registered_since_made};
pub use wishes::{hints_to_be, is_upstreams_default, root_device_hints as wished_root_device_hints};

//! The messages, made of `proto/metamorph/provisioner/v1/provisioner.proto` by the tool in `generate`. The .proto is the description of them.

use std::fmt;

// What the generated code names.
use prost as _;
use tonic_prost as _;

include!("../proto/generated/metamorph.provisioner.v1.generated");

impl fmt::Debug for v1::BmcAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BmcAccess(secret)")
    }
}

impl fmt::Debug for v1::Call {
    /// Without the request, which may have secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("number", &self.number)
            .field("host", &self.host)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    /// Whoever changes the .proto runs the tool.
    #[test]
    fn the_code_is_of_the_published_description() {
        let digest = Sha256::digest(include_bytes!("../proto/metamorph/provisioner/v1/provisioner.proto"));
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let first = include_str!("../proto/generated/metamorph.provisioner.v1.generated").lines().next();
        assert_eq!(first, Some(format!("// Of metamorph/provisioner/v1/provisioner.proto, sha256 {digest}.").as_str()));
    }

    #[test]
    fn what_may_be_secret_is_not_printed() {
        let access = super::v1::BmcAccess { password: "hidden".into(), ..Default::default() };
        let call = super::v1::Call { request: b"hidden".as_slice().into(), bmc: Some(access), ..Default::default() };
        let shown =
            format!("{:?}", super::v1::AskRequest { message: Some(super::v1::ask_request::Message::Call(call)) });
        assert!(!shown.contains("hidden") && !shown.contains("104, 105"), "{shown}");
    }
}

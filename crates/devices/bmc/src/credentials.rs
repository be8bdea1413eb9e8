//! User and password of a BMC.

use secrecy::{ExposeSecret, SecretString};

/// Longest user name or password, bytes.
const MAX_LENGTH: usize = 1024;

/// Why credentials cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// No user.
    #[error("the BMC user name is empty; set username in the Secret that spec.bmc.credentialsName names")]
    NoUser,
    /// No password.
    #[error("the BMC password is empty; set password in the Secret that spec.bmc.credentialsName names")]
    NoPassword,
    /// Too long.
    #[error(
        "the BMC user name or password is longer than 1024 bytes; correct the Secret that spec.bmc.credentialsName names"
    )]
    TooLong,
    /// A line end or another control character, often from `echo` without `-n`.
    #[error(
        "the BMC user name or password contains a control character such as a line end; write it without one into the Secret"
    )]
    Control,
}

/// User and password. `Debug` does not show the password.
#[derive(Clone, Debug)]
pub struct Credentials {
    username: String,
    password: SecretString,
}

impl Credentials {
    /// Checked credentials.
    ///
    /// # Errors
    /// [`CredentialsError`] when a part is empty, too long or not text.
    pub fn new(username: &str, password: SecretString) -> Result<Self, CredentialsError> {
        let secret = password.expose_secret();
        if username.is_empty() {
            return Err(CredentialsError::NoUser);
        }
        if secret.is_empty() {
            return Err(CredentialsError::NoPassword);
        }
        if username.len() > MAX_LENGTH || secret.len() > MAX_LENGTH {
            return Err(CredentialsError::TooLong);
        }
        if username.chars().chain(secret.chars()).any(char::is_control) {
            return Err(CredentialsError::Control);
        }
        Ok(Self { username: username.to_owned(), password })
    }

    /// User.
    #[must_use]
    pub fn username(&self) -> &str {
        &self.username
    }

    /// Password.
    #[must_use]
    pub const fn password(&self) -> &SecretString {
        &self.password
    }
}

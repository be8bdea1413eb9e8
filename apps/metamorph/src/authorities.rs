//! CA certificates given to the server (`--bmc-ca`, `--image-ca`): their files are read again, so that replacing a CA needs no restart.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use provisioner_metamorph::ImageAuthorities;
use redfish::Trust;

use crate::cli::Endpoints;
use crate::flags::{self, Authorities};

/// The files, and the users of their content.
pub struct Given {
    bmc: Option<PathBuf>,
    image: Option<PathBuf>,
    now: Mutex<Authorities>,
    trust: Trust,
    agents: ImageAuthorities,
}

impl Given {
    /// The files of these flags, with their initial content.
    pub fn new(endpoints: &Endpoints, now: Authorities) -> Self {
        let trust = Trust::new(&now.bmc);
        let agents = ImageAuthorities::new(now.image.clone());
        Self { bmc: endpoints.bmc_ca.clone(), image: endpoints.image_ca.clone(), now: Mutex::new(now), trust, agents }
    }

    /// The trust for connections to BMCs.
    pub fn trust(&self) -> Trust {
        self.trust.clone()
    }

    /// The certificates with which agents verify image servers.
    pub fn agents(&self) -> ImageAuthorities {
        self.agents.clone()
    }

    /// Whether there are any files to watch.
    pub fn is_any(&self) -> bool {
        self.bmc.is_some() || self.image.is_some()
    }

    /// Reads the files again. Changes apply at once; an unusable file changes nothing.
    ///
    /// # Errors
    /// The first unusable file.
    pub fn look(&self) -> anyhow::Result<()> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let bmc = flags::certificates(self.bmc.as_deref(), "--bmc-ca");
        if let Ok(bmc) = &bmc
            && *bmc != now.bmc
        {
            self.trust.replace(bmc);
            now.bmc.clone_from(bmc);
            tracing::info!("BMCs are trusted by other certificates from now on (--bmc-ca)");
        }
        let image = flags::certificates(self.image.as_deref(), "--image-ca")?;
        if image != now.image {
            self.agents.replace(image.clone());
            now.image = image;
            tracing::info!(
                "agents that are booted from now on trust servers of images by other certificates (--image-ca)"
            );
        }
        bmc.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use rcgen::{CertificateParams, KeyPair};

    fn certificate(name: &str) -> String {
        let key = KeyPair::generate().unwrap();
        CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap().pem()
    }

    #[test]
    fn files_are_read_again_and_bad_ones_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (bmc, image) = (folder.path().join("bmc.pem"), folder.path().join("image.pem"));
        let [one, two] = ["one", "two"].map(certificate);
        for file in [&bmc, &image] {
            std::fs::write(file, &one).unwrap();
        }
        let line = ["metamorph", "up", "--bmc-ca", bmc.to_str().unwrap(), "--image-ca", image.to_str().unwrap()];
        let Command::Up(up) = Cli::try_parse_from(line).unwrap().command else { panic!("up") };
        let authorities = Authorities { bmc: one.clone(), image: one.clone(), proxy: None };
        let given = Given::new(&up.endpoints, authorities);
        let trusted = |given: &Given| (given.trust().pem(), given.agents().pem());
        given.look().unwrap();
        assert_eq!((trusted(&given), given.trust().changes()), ((Some(one.clone()), one.clone()), 0));
        std::fs::write(&bmc, &two).unwrap();
        std::fs::write(&image, "half a file").unwrap();
        assert!(given.look().unwrap_err().to_string().contains("--image-ca"));
        assert_eq!((trusted(&given), given.trust().changes()), ((Some(two.clone()), one.clone()), 1));
        std::fs::remove_file(&bmc).unwrap();
        std::fs::write(&image, &two).unwrap();
        assert!(given.look().unwrap_err().to_string().contains("--bmc-ca"));
        assert_eq!((trusted(&given), given.trust().changes()), ((Some(two.clone()), two), 1));
    }
}

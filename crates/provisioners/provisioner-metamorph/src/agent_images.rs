//! The agent images that machines are booted with: one for each architecture, and earlier ones that boots may have begun with.

use boot_media::{AgentKind, Architecture, Assets};

/// The agent images of a server.
#[derive(Clone, Debug)]
pub struct AgentImages {
    /// The first is for machines whose architecture nobody tells.
    first: Assets,
    others: Vec<Assets>,
    earlier: Vec<Assets>,
}

impl From<Assets> for AgentImages {
    fn from(first: Assets) -> Self {
        Self { first, others: Vec::new(), earlier: Vec::new() }
    }
}

impl AgentImages {
    /// Adds the image for another architecture.
    ///
    /// # Errors
    /// The architecture, if there is an image for it already.
    pub fn with(mut self, image: Assets) -> Result<Self, Architecture> {
        let architecture = image.architecture();
        if self.of(architecture).is_some() {
            return Err(architecture);
        }
        self.others.push(image);
        Ok(self)
    }

    /// Adds images that boots may have begun with: those read them to their end.
    #[must_use]
    pub fn with_earlier(mut self, images: Vec<Assets>) -> Self {
        self.earlier.extend(images);
        self
    }

    /// The image of new boots of an architecture.
    #[must_use]
    pub fn of(&self, architecture: Architecture) -> Option<&Assets> {
        self.current().find(|image| image.architecture() == architecture)
    }

    /// The agent that new boots have.
    #[must_use]
    pub fn agent(&self) -> AgentKind {
        self.first.agent()
    }

    /// The architecture of machines whose architecture nobody tells.
    #[must_use]
    pub fn otherwise(&self) -> Architecture {
        self.first.architecture()
    }

    /// Architectures of the machines that can be booted, in the order in which the images were given.
    #[must_use]
    pub fn architectures(&self) -> Vec<Architecture> {
        self.current().map(Assets::architecture).collect()
    }

    /// The images of new boots, one for each architecture.
    pub(crate) fn current(&self) -> impl Iterator<Item = &Assets> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// All images that a boot may have begun with.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Assets> {
        self.current().chain(&self.earlier)
    }
}

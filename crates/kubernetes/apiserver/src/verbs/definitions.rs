//! The hook after the write of a definition: it accepts the names and establishes the definition.

use super::Backend;
use crate::change::Change;
use crate::object::Object;
use crate::resource::Resource;
use crate::route::Verb;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult};
use crate::strategies::custom_resource_definition::lifecycle::{Taken, establish};

impl Backend {
    /// Accepts a definition's names if they are free, then establishes it. Upstream's controllers do that in a later
    /// write.
    pub async fn establish_definition(&self, name: &str) -> ApiResult<()> {
        let catalog = self.registry.catalog();
        let crds = catalog
            .find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
            .ok_or_else(ApiError::unknown_path)?;
        let _alone = self.registry.naming.lock().await;
        let taken = self.names_taken(crds, name).await?;
        let mut change = Change::by_controller(Verb::Update, "crd-naming");
        "status".clone_into(&mut change.sub);
        "kube-apiserver".clone_into(&mut change.manager);
        let make = |before: &Object| {
            let mut next = before.clone();
            crate::object::metadata_mut(&mut next).shift_remove("resourceVersion");
            establish(&mut next, &taken, &self.given.stamp());
            Ok(next)
        };
        match self.change(&change, crds, "", name, make).await {
            Ok(_) | Err(ApiError { code: 404, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Retries the definitions of a group after one of them released its names.
    pub async fn establish_group(&self, group: &str) -> ApiResult<()> {
        let catalog = self.registry.catalog();
        let crds = catalog
            .find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
            .ok_or_else(ApiError::unknown_path)?;
        for row in self.select(crds, "", &Selector::default()).await?.1 {
            if row.name.split_once('.').is_some_and(|(_, suffix)| suffix == group) {
                self.establish_definition(&row.name).await?;
            }
        }
        Ok(())
    }

    async fn names_taken(&self, crds: &Resource, name: &str) -> ApiResult<Taken> {
        let mut taken = Taken::default();
        let group = name.split_once('.').map_or("", |(_, group)| group);
        for row in self.select(crds, "", &Selector::default()).await?.1 {
            let same = row.name.split_once('.').is_some_and(|(_, suffix)| suffix == group);
            if same
                && row.name != name
                && let Ok(crd) = crds.load(row.rev, &row.body)
            {
                taken.add(&crd);
            }
        }
        Ok(taken)
    }
}

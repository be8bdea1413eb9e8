//! Field owners of written objects. Their fields may be recorded in another version, which a webhook has to convert.

use super::Backend;
use crate::change::Change;
use crate::fields::Scope;
use crate::fields::views::{Need, Views};
use crate::object::Object;
use crate::resource::Resource;
use crate::status::{ApiError, ApiResult};

impl Backend {
    /// Updates the `managedFields` of `wanted`, which replaces `live` (`None` if it is new).
    pub async fn update_managed_fields(
        &self,
        change: &Change,
        resource: &Resource,
        live: Option<&Object>,
        wanted: &mut Object,
    ) -> ApiResult<()> {
        let catalog = self.registry.catalog();
        let views = Views::of(resource);
        let (manager, now) = (&change.manager, self.given.now());
        let scope = Scope { resource, catalog: &catalog, sub: &change.sub, manager, views: &views, now };
        if !views.asks() {
            scope.update(live, wanted);
            return Ok(());
        }
        loop {
            let mut owned = wanted.clone();
            scope.update(live, &mut owned);
            let Some(need) = views.need() else {
                *wanted = owned;
                return Ok(());
            };
            self.learn(&views, need, resource).await?;
        }
    }

    /// Has the resource's webhook convert the needed object.
    pub async fn learn(&self, views: &Views, need: Need, resource: &Resource) -> ApiResult<()> {
        let outcome = self.by_webhook(resource, need.object.clone(), &need.to).await.map_err(|error| error.message);
        if views.learn(need, outcome) {
            Ok(())
        } else {
            Err(ApiError::internal("the owners of its fields speak of too many versions"))
        }
    }
}

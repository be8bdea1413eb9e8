//! Collections of resources: reads their members page by page (DSP0266, "Resource collection responses").

use http::Method;
use serde_json::Value;

use crate::exchange::{Core, Fault};
use crate::json::{MAX_MEMBERS, MAX_VALUES, link, path_only, same_path, weight};
use crate::state::Auth;

/// Most pages of a collection that are read.
const MAX_PAGES: usize = 16;

/// What was read of a collection so far.
#[derive(Default)]
struct Found {
    members: Vec<(String, Value)>,
    /// Whether members are missing, or lack a link.
    lacks: bool,
    /// Whether the reading ended before the list did.
    cut: bool,
}

/// Members of a collection, and whether these are all that the BMC lists.
pub type Listed = (Vec<(String, Value)>, bool);

impl Found {
    fn listed(self) -> Listed {
        (self.members, !self.lacks && !self.cut)
    }
}

impl Core {
    /// Links to the members of a collection.
    pub async fn members(&self, what: &str, path: &str) -> Result<Vec<String>, Fault> {
        Ok(self.pages(what, path, None, 0).await?.members.into_iter().map(|(path, _)| path).collect())
    }

    /// The members of a collection: the whole member if the BMC inlines members, else only its link. Uses the current credentials if none are given.
    /// If the BMC offers to inline members and then fails to, reads the plain list, and only plain lists from then on.
    pub async fn expanded(&self, what: &str, path: &str, auth: Option<&Auth>) -> Result<Vec<(String, Value)>, Fault> {
        Ok(self.listed(what, path, auth).await?.0)
    }

    /// The same, with whether these are all.
    pub async fn listed(&self, what: &str, path: &str, auth: Option<&Auth>) -> Result<Listed, Fault> {
        let query = self.root(what).await?.expand.filter(|_| !self.state().expand_broken && !path.contains('?'));
        let Some(query) = query else { return Ok(self.pages(what, path, auth, MAX_VALUES).await?.listed()) };
        match self.pages(what, &format!("{path}{query}"), auth, MAX_VALUES).await {
            Ok(found) if !found.lacks => return Ok(found.listed()),
            Ok(_) => {}
            Err(fault) if fault.status().is_some_and(|status| status != 401) || fault.is_nonsense() => {}
            Err(fault) => return Err(fault),
        }
        let plain = self.pages(what, path, auth, MAX_VALUES).await?;
        self.state().expand_broken = true;
        Ok(plain.listed())
    }

    /// All pages of a collection. Each member counts once, pages in a circle end, and a further page that the BMC refuses is left out. Of what stands in
    /// the collection itself no more than `kept` values are kept: of the members after that there are only the links.
    async fn pages(&self, what: &str, path: &str, auth: Option<&Auth>, mut kept: usize) -> Result<Found, Fault> {
        let mut found = Found::default();
        let mut seen = vec![path.to_owned()];
        let mut value = self.send(what, Method::GET, path, auth).await?.value;
        loop {
            let items = value.get("Members").and_then(Value::as_array).map(Vec::as_slice);
            found.lacks |= items.is_none_or(|items| items.is_empty() && counts_members(&value));
            found.cut |= items.is_some_and(|items| items.len() > MAX_MEMBERS);
            for item in items.unwrap_or_default().iter().take(MAX_MEMBERS) {
                let Some(path) = link(item) else {
                    found.lacks = true;
                    continue;
                };
                if !found.members.iter().any(|(known, _)| same_path(known, &path)) {
                    let weight = weight(item);
                    let embedded = if weight <= kept { item.clone() } else { Value::Null };
                    kept = kept.saturating_sub(weight);
                    found.members.push((path, embedded));
                }
            }
            let next = value.get("Members@odata.nextLink").and_then(Value::as_str).and_then(path_only);
            let Some(next) = next else { return Ok(found) };
            if found.members.len() >= MAX_MEMBERS
                || seen.len() >= MAX_PAGES
                || seen.iter().any(|old| same_path(old, &next))
            {
                tracing::debug!(
                    collection = path,
                    pages = seen.len(),
                    "the pages go on or in a circle: the rest is left out"
                );
                found.cut = true;
                return Ok(found);
            }
            value = match self.send(what, Method::GET, &next, auth).await {
                Ok(reply) => reply.value,
                Err(fault) if fault.status().is_some_and(|status| status < 500 && status != 401) => {
                    found.lacks = true;
                    return Ok(found);
                }
                Err(fault) => return Err(fault),
            };
            seen.push(next);
        }
    }
}

/// Whether a collection claims to have members.
fn counts_members(collection: &Value) -> bool {
    collection.get("Members@odata.count").and_then(Value::as_u64).is_some_and(|count| count > 0)
}

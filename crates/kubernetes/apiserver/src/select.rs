//! Lists of stored objects: page by page, consistent at one revision, in the requested version.

use crate::objects::{Objects, store_failed};
use crate::resource::Resource;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult};
use crate::store::{Cursor, ListPage, ListQuery, Row, StoreError};
use crate::versions;

/// Most rows per read.
const CHUNK: usize = 256;

/// The start and the revision of a list.
pub struct Begin {
    /// Revision of the list; `None` is the newest.
    pub at: Option<u64>,
    /// The position to start after.
    pub after: Option<Cursor>,
}

/// A page of matching objects.
pub struct Selected {
    /// Revision of the page.
    pub rev: u64,
    /// Matching rows.
    pub rows: Vec<Row>,
    /// The position to continue after, if there is more.
    pub next: Option<Cursor>,
}

/// A list that is read in parts, all at the same revision.
#[derive(Clone)]
pub struct Walk {
    /// The next query to the store.
    pub query: ListQuery,
    /// How many objects are still wanted, if there is a limit.
    pub left: Option<usize>,
    /// Revision of all parts.
    pub rev: u64,
    /// The position to continue after once the limit is reached.
    pub next: Option<Cursor>,
    /// Whether everything was read, or the limit is reached.
    pub done: bool,
}

/// Why a part of a list could not be read.
pub enum Unread {
    /// The store failed.
    Store(StoreError),
    /// A conversion webhook failed.
    Converted(ApiError),
}

impl From<Unread> for ApiError {
    fn from(error: Unread) -> Self {
        match error {
            Unread::Store(error) => store_failed(error),
            Unread::Converted(error) => error,
        }
    }
}

impl Walk {
    /// A list from this start.
    pub fn new(resource: &Resource, ns: &str, begin: Begin, limit: Option<usize>) -> Self {
        let query = ListQuery {
            resource: resource.storage.clone(),
            ns: (!ns.is_empty()).then(|| ns.to_owned()),
            after: begin.after,
            at: begin.at,
            limit: CHUNK,
            pick: None,
        };
        Self { query, left: limit, rev: 0, next: None, done: false }
    }

    /// The next matching rows, which can be empty although the list continues.
    pub async fn step(
        &mut self,
        objects: &Objects,
        resource: &Resource,
        selector: &Selector,
    ) -> Result<Vec<Row>, Unread> {
        let wanted = self.left.map_or(CHUNK, |left| left.clamp(1, CHUNK));
        // A conversion webhook may change labels, so stored labels cannot be used for selection.
        self.query.pick = if versions::asks(resource) { None } else { selector.pick() };
        self.query.limit = if selector.is_empty() || self.query.pick.is_some() { wanted } else { CHUNK };
        let ListPage { rev, mut rows, more } = objects.store.list(self.query.clone()).await.map_err(Unread::Store)?;
        objects.convert_rows(resource, &mut rows).await.map_err(Unread::Converted)?;
        self.rev = rev;
        // The remaining parts use the same revision.
        self.query.at = Some(rev);
        let count = rows.len();
        let mut found = Vec::with_capacity(count);
        for (seen, row) in rows.into_iter().enumerate() {
            self.query.after = Some((row.ns.clone(), row.name.clone()));
            if !selector.is_empty() && !selector.matches(resource, &row.ns, &row.name, row.rev, &row.body) {
                continue;
            }
            found.push(row);
            self.left = self.left.map(|left| left - 1);
            if self.left == Some(0) {
                self.done = true;
                if more || seen + 1 < count {
                    self.next = self.query.after.clone();
                }
                return Ok(found);
            }
        }
        self.done = !more;
        Ok(found)
    }
}

impl Objects {
    /// Reads one page of matching objects, or all of them without a limit.
    pub async fn page(
        &self,
        resource: &Resource,
        ns: &str,
        selector: &Selector,
        at: Option<u64>,
        after: Option<Cursor>,
        limit: Option<usize>,
    ) -> ApiResult<Selected> {
        let mut walk = Walk::new(resource, ns, Begin { at, after }, limit);
        let mut rows = Vec::new();
        while !walk.done {
            rows.extend(walk.step(self, resource, selector).await?);
        }
        Ok(Selected { rev: walk.rev, rows, next: walk.next })
    }

    /// The first matching objects after a position, as many as one read of the store returns, which is bounded in
    /// bytes.
    pub async fn part(
        &self,
        resource: &Resource,
        ns: &str,
        selector: &Selector,
        at: Option<u64>,
        after: Option<Cursor>,
    ) -> ApiResult<Selected> {
        let mut walk = Walk::new(resource, ns, Begin { at, after }, None);
        let mut rows = Vec::new();
        while rows.is_empty() && !walk.done {
            rows = walk.step(self, resource, selector).await?;
        }
        let next = if walk.done { None } else { walk.query.after };
        Ok(Selected { rev: walk.rev, rows, next })
    }

    /// All objects that match now, and the present revision.
    pub async fn select(&self, resource: &Resource, ns: &str, selector: &Selector) -> ApiResult<(u64, Vec<Row>)> {
        let page = self.page(resource, ns, selector, None, None, None).await?;
        Ok((page.rev, page.rows))
    }

    /// The number of objects after a position at a revision.
    pub async fn count_after(&self, resource: &Resource, ns: &str, place: &Cursor, rev: u64) -> ApiResult<u64> {
        let query = ListQuery {
            resource: resource.storage.clone(),
            ns: (!ns.is_empty()).then(|| ns.to_owned()),
            after: Some(place.clone()),
            at: Some(rev),
            limit: 0,
            pick: None,
        };
        self.store.count(query).await.map_err(store_failed)
    }
}

//! Lists of stored objects: page by page, consistent at one revision, in the version asked for.

use crate::objects::{Objects, store_failed};
use crate::resource::Resource;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult};
use crate::store::{Cursor, ListPage, ListQuery, Row, StoreError};
use crate::versions;

/// Rows read at once.
const CHUNK: usize = 256;

/// Where a list begins and as of when.
pub struct Begin {
    /// Revision of the list; the newest if none.
    pub at: Option<u64>,
    /// The place after which it begins.
    pub after: Option<Cursor>,
}

/// A page after the selectors.
pub struct Selected {
    /// Revision of the page.
    pub rev: u64,
    /// Matching rows.
    pub rows: Vec<Row>,
    /// Where the next page starts, if there is one.
    pub next: Option<Cursor>,
}

/// A list that is read part by part; all parts are as of one revision.
#[derive(Clone)]
pub struct Walk {
    /// What is asked of the store next.
    pub query: ListQuery,
    /// How many are still wanted, if there is a limit.
    pub left: Option<usize>,
    /// Revision that all parts are of.
    pub rev: u64,
    /// Where the next page starts, once this one is full.
    pub next: Option<Cursor>,
    /// Whether all was read, or as many as wanted.
    pub done: bool,
}

/// Why a part of a list could not be had.
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
    /// A list that begins there.
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

    /// The next matching rows; there may be none although the list goes on.
    pub async fn step(
        &mut self,
        objects: &Objects,
        resource: &Resource,
        selector: &Selector,
    ) -> Result<Vec<Row>, Unread> {
        let wanted = self.left.map_or(CHUNK, |left| left.clamp(1, CHUNK));
        // A conversion webhook may change labels: then those of the stored form say nothing.
        self.query.pick = if versions::asks(resource) { None } else { selector.pick() };
        self.query.limit = if selector.is_empty() || self.query.pick.is_some() { wanted } else { CHUNK };
        let ListPage { rev, mut rows, more } = objects.store.list(self.query.clone()).await.map_err(Unread::Store)?;
        objects.convert_rows(resource, &mut rows).await.map_err(Unread::Converted)?;
        self.rev = rev;
        // The rest of the list is read as of the same revision.
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

    /// The first matching objects after a place: as many as one read of the store gives, which is bounded in bytes.
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

    /// All objects that match now, and the revision of that.
    pub async fn select(&self, resource: &Resource, ns: &str, selector: &Selector) -> ApiResult<(u64, Vec<Row>)> {
        let page = self.page(resource, ns, selector, None, None, None).await?;
        Ok((page.rev, page.rows))
    }

    /// Objects after a place, as of a revision.
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

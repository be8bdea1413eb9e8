//! How large what an expression works on may be, for the estimate of what it costs.

/// How large what variables hold may be.
pub trait Sizes {
    /// The most elements, entries or code points at a path such as `["self", "list", "@items"]`; none if unknown.
    fn max_size(&self, path: &[String]) -> Option<u64>;
}

/// Nothing is known of any size.
#[derive(Debug, Clone, Copy)]
pub struct NoSizes;

impl Sizes for NoSizes {
    fn max_size(&self, _: &[String]) -> Option<u64> {
        None
    }
}

//! Upper bounds on the sizes of an expression's inputs, for the cost estimate.

/// Sizes of variables.
pub trait Sizes {
    /// The most elements, entries or code points at a path such as `["self", "list", "@items"]`; none if unknown.
    fn max_size(&self, path: &[String]) -> Option<u64>;
}

/// No sizes are known.
#[derive(Debug, Clone, Copy)]
pub struct NoSizes;

impl Sizes for NoSizes {
    fn max_size(&self, _: &[String]) -> Option<u64> {
        None
    }
}

//! The position of a value in a document: a chain of steps on the stack, formatted only for an error.

use std::fmt;

/// A place in a document.
#[derive(Debug, Clone, Copy)]
pub enum Path<'a> {
    /// The whole document.
    Root,
    /// A member of the object at a place.
    Key(&'a Path<'a>, &'a str),
    /// An item of the list at a place.
    Index(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Key(Path::Root, key) => f.write_str(key),
            Path::Key(parent, key) => write!(f, "{parent}.{key}"),
            Path::Index(parent, at) => write!(f, "{parent}[{at}]"),
        }
    }
}

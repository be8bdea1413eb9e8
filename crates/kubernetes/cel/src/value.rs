//! Values that expressions work on.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::ext::Ext;
use crate::fault::Fault;
use crate::source::deep;
use crate::types::Type;

/// A value. Clones share.
#[derive(Debug, Clone)]
pub enum Value {
    /// `null`.
    Null,
    /// A truth value.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating point number.
    Double(f64),
    /// Text.
    String(Arc<str>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A list.
    List(Arc<List>),
    /// A map, or an object by field names.
    Map(Arc<Map>),
    /// A point in time: nanoseconds since 1970 (UTC).
    Timestamp(i128),
    /// A span of time in nanoseconds.
    Duration(i64),
    /// A type.
    Type(Type),
    /// A value that may be there.
    Optional(Option<Arc<Value>>),
    /// A value of one of Kubernetes' own types.
    Ext(Arc<Ext>),
    /// Data of unknown schema: only comparable.
    Unknown(Arc<serde_json::Value>),
    /// Fields that are computed on access.
    Lazy(Arc<dyn Fields>),
    /// Data that does not match its schema: using it fails with this fault.
    Broken(Fault),
}

/// Fields that are computed on access, such as the `variables` of an admission policy.
pub trait Fields: Send + Sync + fmt::Debug {
    /// The value of a field; `None` if the field does not exist.
    ///
    /// # Errors
    /// The fault of its computation.
    fn get(&self, name: &str) -> Option<Result<Value, Fault>>;
}

/// A list with the equality of its schema.
#[derive(Debug, Clone, Default)]
pub struct List {
    /// The elements.
    pub items: Vec<Value>,
    /// How two such lists are compared and joined.
    pub kind: ListKind,
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ListKind {
    /// In order.
    #[default]
    Plain,
    /// Regardless of order.
    Set,
    /// Regardless of order, with elements identified by these fields.
    Map(Vec<String>),
}

/// A map.
#[derive(Debug, Clone, Default)]
pub struct Map {
    /// The entries.
    pub entries: BTreeMap<Key, Value>,
    /// How many more there are that no schema describes: they count for the size only.
    pub hidden: usize,
}

/// The key of a map. Whole numbers of either sign are the same key if they are equal.
#[derive(Debug, Clone)]
pub enum Key {
    /// A truth value.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// Text.
    String(Arc<str>),
}

impl Key {
    fn rank(&self) -> u8 {
        match self {
            Self::Bool(_) => 0,
            Self::Int(_) | Self::Uint(_) => 1,
            Self::String(_) => 2,
        }
    }

    fn number(&self) -> i128 {
        match self {
            Self::Int(n) => i128::from(*n),
            Self::Uint(n) => i128::from(*n),
            Self::Bool(b) => i128::from(*b),
            Self::String(_) => 0,
        }
    }

    /// The key as a value.
    pub fn value(&self) -> Value {
        match self {
            Self::Bool(b) => Value::Bool(*b),
            Self::Int(n) => Value::Int(*n),
            Self::Uint(n) => Value::Uint(*n),
            Self::String(s) => Value::String(s.clone()),
        }
    }

    /// The key that `value` looks up; none if no key can equal it.
    pub fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Bool(b) => Self::Bool(*b),
            Value::Int(n) => Self::Int(*n),
            Value::Uint(n) => Self::Uint(*n),
            Value::String(s) => Self::String(s.clone()),
            Value::Double(d) if d.fract() == 0.0 && *d >= -9.2e18 && *d <= 9.2e18 => Self::Int(*d as i64),
            Value::Double(d) if d.fract() == 0.0 && *d > 0.0 && *d <= 1.8e19 => Self::Uint(*d as u64),
            _ => return None,
        })
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::String(a), Self::String(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()).then_with(|| self.number().cmp(&other.number())),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

/// A value, or the fault that prevented it.
pub type Outcome = Result<Value, Fault>;

impl Value {
    /// Text.
    pub fn string(text: &str) -> Self {
        Self::String(text.into())
    }

    /// A plain list.
    pub fn list(items: Vec<Value>) -> Self {
        Self::List(Arc::new(List { items, kind: ListKind::Plain }))
    }

    /// An object of fields.
    pub fn object<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let entries = fields.into_iter().map(|(k, v)| (Key::String(k.into()), v)).collect();
        Self::Map(Arc::new(Map { entries, hidden: 0 }))
    }

    /// A list of texts.
    pub fn strings<S: AsRef<str>>(texts: impl IntoIterator<Item = S>) -> Self {
        Self::list(texts.into_iter().map(|t| Self::string(t.as_ref())).collect())
    }

    /// Data without a schema: objects become maps, whole numbers `int`.
    pub fn from_json(value: &serde_json::Value) -> Self {
        use serde_json::Value as Json;
        match value {
            Json::Null => Self::Null,
            Json::Bool(b) => Self::Bool(*b),
            // Kubernetes' decoder reads an integer beyond 64 bits with a sign as a float.
            Json::Number(n) => n.as_i64().map_or_else(|| Self::Double(n.as_f64().unwrap_or_default()), Self::Int),
            Json::String(s) => Self::string(s),
            Json::Array(items) => deep(|| Self::list(items.iter().map(Self::from_json).collect())),
            Json::Object(fields) => deep(|| Self::object(fields.iter().map(|(k, v)| (k.as_str(), Self::from_json(v))))),
        }
    }

    /// The value's type.
    pub fn type_of(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
            Self::List(_) => Type::list(Type::Dyn),
            Self::Map(_) | Self::Lazy(_) => Type::map(Type::Dyn, Type::Dyn),
            Self::Timestamp(_) => Type::Timestamp,
            Self::Duration(_) => Type::Duration,
            Self::Type(_) => Type::Type(None),
            Self::Optional(_) => Type::optional(Type::Dyn),
            Self::Ext(ext) => ext.type_of(),
            Self::Unknown(_) => Type::Opaque("unknown".into()),
            Self::Broken(_) => Type::Error,
        }
    }

    /// The size for cost accounting: elements, code points or bytes; one for other values.
    pub fn size(&self) -> u64 {
        match self {
            Self::String(s) => s.chars().count() as u64,
            Self::Bytes(b) => b.len() as u64,
            Self::List(l) => l.items.len() as u64,
            Self::Map(m) => (m.entries.len() + m.hidden) as u64,
            Self::Optional(Some(v)) => v.size(),
            Self::Ext(ext) => ext.size(),
            _ => 1,
        }
    }

    /// Whether two values are equal; numbers across their types.
    pub fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::String(a), Self::String(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Timestamp(a), Self::Timestamp(b)) => a == b,
            (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::Type(a), Self::Type(b)) => a.runtime_name() == b.runtime_name(),
            (Self::List(a), Self::List(b)) => deep(|| list_equals(a, b)),
            (Self::Map(a), Self::Map(b)) => deep(|| map_equals(a, b)),
            (Self::Optional(a), Self::Optional(b)) => match (a, b) {
                (Some(a), Some(b)) => a.equals(b),
                (a, b) => a.is_none() == b.is_none(),
            },
            (Self::Ext(a), Self::Ext(b)) => a.equals(b),
            (Self::Unknown(a), Self::Unknown(b)) => a == b,
            _ => self.compare_numbers(other) == Some(Ordering::Equal),
        }
    }

    /// The order of two numbers of any types; `None` if either is not a number, or is NaN.
    pub fn compare_numbers(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(b)),
            (Self::Uint(a), Self::Uint(b)) => Some(a.cmp(b)),
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(b),
            (Self::Int(a), Self::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Uint(a), Self::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Int(a), Self::Double(b)) => whole_and_double(i128::from(*a), *b),
            (Self::Uint(a), Self::Double(b)) => whole_and_double(i128::from(*a), *b),
            (Self::Double(a), Self::Int(b)) => whole_and_double(i128::from(*b), *a).map(Ordering::reverse),
            (Self::Double(a), Self::Uint(b)) => whole_and_double(i128::from(*b), *a).map(Ordering::reverse),
            _ => None,
        }
    }
}

fn whole_and_double(whole: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    if double >= 1.9e19 {
        return Some(Ordering::Less);
    }
    if double <= -1.0e19 {
        return Some(Ordering::Greater);
    }
    let floor = double.floor() as i128;
    Some(whole.cmp(&floor).then(if double.fract() == 0.0 { Ordering::Equal } else { Ordering::Less }))
}

fn list_equals(a: &List, b: &List) -> bool {
    if a.items.len() != b.items.len() {
        return false;
    }
    match &a.kind {
        ListKind::Plain => a.items.iter().zip(&b.items).all(|(a, b)| a.equals(b)),
        ListKind::Set => {
            let index = Index::new(&a.items, |v| Some(vec![v.clone()]));
            b.items.iter().all(|v| index.find(std::slice::from_ref(v)).is_some())
        }
        ListKind::Map(keys) => {
            let index = Index::new(&a.items, |v| keys_of(v, keys));
            b.items.iter().all(|v| {
                let found = keys_of(v, keys).and_then(|k| index.find(&k));
                found.and_then(|at| a.items.get(at)).is_some_and(|item| item.equals(v))
            })
        }
    }
}

/// The values of an element's key fields.
pub(crate) fn keys_of(value: &Value, keys: &[String]) -> Option<Vec<Value>> {
    let Value::Map(map) = value else { return None };
    let key = |k: &String| map.entries.get(&Key::String(k.as_str().into())).cloned().unwrap_or(Value::Null);
    Some(keys.iter().map(key).collect())
}

/// Finds elements by keys without comparing each with each.
pub(crate) struct Index {
    sorted: BTreeMap<Vec<Option<Key>>, usize>,
    others: Vec<(Vec<Value>, usize)>,
}

impl Index {
    pub fn new(items: &[Value], keys: impl Fn(&Value) -> Option<Vec<Value>>) -> Self {
        let mut index = Self { sorted: BTreeMap::new(), others: Vec::new() };
        for (at, item) in items.iter().enumerate() {
            if let Some(key) = keys(item) {
                index.insert(key, at);
            }
        }
        index
    }

    fn plain(key: &[Value]) -> Option<Vec<Option<Key>>> {
        key.iter().map(|v| if matches!(v, Value::Null) { Some(None) } else { Key::of(v).map(Some) }).collect()
    }

    pub fn insert(&mut self, key: Vec<Value>, at: usize) {
        match Self::plain(&key) {
            Some(plain) => {
                self.sorted.insert(plain, at);
            }
            None => self.others.push((key, at)),
        }
    }

    pub fn find(&self, key: &[Value]) -> Option<usize> {
        if let Some(plain) = Self::plain(key) {
            return self.sorted.get(&plain).copied();
        }
        let same = |values: &[Value]| values.len() == key.len() && values.iter().zip(key).all(|(a, b)| a.equals(b));
        self.others.iter().find(|(values, _)| same(values)).map(|(_, at)| *at)
    }
}

fn map_equals(a: &Map, b: &Map) -> bool {
    a.entries.len() == b.entries.len()
        && a.hidden == b.hidden
        && a.entries.iter().all(|(k, v)| b.entries.get(k).is_some_and(|other| v.equals(other)))
}

//! Media types: content negotiation of responses, and the media type of bodies.

use http::{HeaderMap, header};

use crate::status::{ApiError, ApiResult};

/// Largest request body, in bytes.
pub const MAX_BODY: usize = 3 << 20;

/// Kubernetes' protobuf, for built-in kinds and for the metadata of all.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Shape of the response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// The object itself.
    Plain,
    /// `meta.k8s.io` Table of this version.
    Table(String),
    /// PartialObjectMetadata or its list.
    Partial,
}

/// Encoding of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

impl Encoding {
    const ALL: [Self; 3] = [Self::Json, Self::Yaml, Self::Protobuf];

    /// The media type.
    pub fn media(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => PROTOBUF,
        }
    }
}

/// The negotiated form of the response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accept {
    /// Its shape.
    pub shape: Shape,
    /// Its encoding.
    pub encoding: Encoding,
    /// For `Shape::Partial`: whether a list is requested.
    pub list: bool,
    /// For `Shape::Partial`: version `v1beta1` instead of `v1`.
    pub beta: bool,
}

impl Accept {
    /// The object itself, in this encoding.
    pub fn plain(encoding: Encoding) -> Self {
        Self { shape: Shape::Plain, encoding, list: false, beta: false }
    }
}

/// The text of the Accept header; the first one if there are several.
pub fn accept_header(headers: &HeaderMap) -> String {
    headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned()
}

/// A clause of an Accept header: type, subtype, weight and parameters.
struct Clause<'a> {
    main: &'a str,
    sub: &'a str,
    q: f64,
    params: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    fn parse(part: &'a str) -> Option<Self> {
        let part = part.trim_matches(' ');
        let (media, params) = part.split_once(';').unwrap_or((part, ""));
        let (main, sub) = match media.split_once('/') {
            Some((main, sub)) if !sub.contains('/') => (main.trim_matches(' '), sub.trim_matches(' ')),
            None if media.trim_matches(' ') == "*" => ("*", "*"),
            _ => return None,
        };
        let mut clause = Self { main, sub, q: 1.0, params: Vec::new() };
        for (key, value) in params.split(';').filter_map(|p| p.split_once('=')) {
            match key.trim_matches(' ') {
                _ if value.is_empty() || value.contains('=') => {}
                "q" => clause.q = value.parse().unwrap_or(0.0),
                key => clause.params.push((key, value.trim_matches(' '))),
            }
        }
        Some(clause)
    }

    fn takes(&self, media: &str) -> bool {
        let (main, sub) = media.split_once('/').unwrap_or((media, ""));
        self.main == main && (self.sub == sub || self.sub == "*") || self.main == "*" && self.sub == "*"
    }

    /// Upstream's order of preference, which is not a strict order.
    fn before(&self, other: &Self) -> bool {
        self.q > other.q || self.main != "*" && other.main == "*" || self.sub != "*" && other.sub == "*"
    }
}

fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut out: Vec<Clause<'_>> = Vec::new();
    for clause in accept.split(',').take(64).filter_map(Clause::parse) {
        out.push(clause);
        let mut at = out.len() - 1;
        while at > 0 && out[at].before(&out[at - 1]) {
            out.swap(at, at - 1);
            at -= 1;
        }
    }
    out
}

/// The offered media type that the client prefers; without an Accept header, the first one.
pub fn prefer<'a>(accept: &str, offered: &[&'a str]) -> Option<&'a str> {
    if accept.is_empty() {
        return offered.first().copied();
    }
    clauses(accept).iter().find_map(|clause| offered.iter().copied().find(|media| clause.takes(media)))
}

/// Optional forms of a resource's objects.
#[derive(Debug, Clone, Copy)]
pub struct Forms {
    /// Protobuf: not for custom resources.
    pub protobuf: bool,
    /// Tables: not for reviews and tokens.
    pub tables: bool,
}

impl Forms {
    /// Both.
    pub const ALL: Self = Self { protobuf: true, tables: true };
}

/// Negotiates the first form that is possible. A watch has no YAML form.
pub fn negotiate(accept: &str, forms: Forms, watch: bool) -> ApiResult<Accept> {
    let found = if accept.is_empty() { Some(Accept::plain(Encoding::Json)) } else { pick(accept, forms) };
    match found {
        Some(accept) if !watch || accept.encoding != Encoding::Yaml => Ok(accept),
        _ if watch => {
            let offered = format!("application/json;stream=watch, {PROTOBUF};stream=watch");
            Err(ApiError::not_acceptable(&offered))
        }
        _ => Err(ApiError::not_acceptable(&Encoding::ALL.map(Encoding::media).join(", "))),
    }
}

/// Checks Accept like upstream's router for built-in kinds, which compares whole media types before any handler
/// considers weights and parameters. `streams` if the route serves lists and watches.
pub fn routed(accept: &str, streams: bool) -> ApiResult<()> {
    let offered = Encoding::ALL.map(Encoding::media);
    let taken = |part: &str| {
        let media = part.split(';').next().unwrap_or_default().trim_matches(' ');
        media == "*/*" || offered.contains(&media)
    };
    if accept.is_empty() || accept.split(',').any(taken) {
        return Ok(());
    }
    let mut all = offered.join(", ");
    if streams {
        all.push_str(&format!(", application/json;stream=watch, {PROTOBUF};stream=watch"));
    }
    Err(ApiError::not_routed(&all))
}

fn pick(accept: &str, forms: Forms) -> Option<Accept> {
    let clauses = clauses(accept);
    clauses.iter().find_map(|clause| {
        Encoding::ALL.into_iter().filter(|e| clause.takes(e.media())).find_map(|e| offer(clause, e, forms))
    })
}

/// The form that a clause selects in one encoding, if it is possible.
fn offer(clause: &Clause<'_>, encoding: Encoding, forms: Forms) -> Option<Accept> {
    let (mut kind, mut group, mut version) = (None, "", "");
    for (key, value) in &clause.params {
        match *key {
            "as" => kind = Some(*value),
            "g" => group = value,
            "v" => version = value,
            "stream" if *value != "watch" || encoding == Encoding::Yaml => return None,
            "sv" => return None,
            _ => {}
        }
    }
    if kind.is_none() && group.is_empty() && version.is_empty() {
        return (forms.protobuf || encoding != Encoding::Protobuf).then(|| Accept::plain(encoding));
    }
    if group != "meta.k8s.io" || !matches!(version, "v1" | "v1beta1") {
        return None;
    }
    let partial = |list| Accept { shape: Shape::Partial, encoding, list, beta: version == "v1beta1" };
    match kind {
        Some("Table") if forms.tables && encoding != Encoding::Protobuf => {
            Some(Accept { shape: Shape::Table(version.to_owned()), ..Accept::plain(encoding) })
        }
        Some("PartialObjectMetadata") => Some(partial(false)),
        Some("PartialObjectMetadataList") => Some(partial(true)),
        _ => None,
    }
}

/// The encoding of a discovery document, and whether it is the aggregated list, which only the roots offer.
pub fn discovery(accept: &str, aggregates: bool) -> ApiResult<(Encoding, bool)> {
    if accept.is_empty() {
        return Ok((Encoding::Json, false));
    }
    let clauses = clauses(accept);
    let in_one = |clause: &Clause<'_>| {
        let of = |key: &str| clause.params.iter().rfind(|(k, _)| *k == key).map_or("", |(_, v)| *v);
        let wanted = [of("g"), of("v"), of("as")] == ["apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList"];
        Encoding::ALL.into_iter().find(|e| wanted && clause.takes(e.media()))
    };
    // Aggregated discovery wins regardless of q-values.
    if aggregates && let Some(encoding) = clauses.iter().find_map(in_one) {
        return Ok((encoding, true));
    }
    let plain = |clause: &Clause<'_>| {
        let encodings = Encoding::ALL.into_iter().filter(|e| clause.takes(e.media()));
        encodings
            .filter_map(|e| offer(clause, e, Forms::ALL))
            .find(|a| a.shape == Shape::Plain)
            .map(|a| (a.encoding, false))
    };
    let found = clauses.iter().find_map(plain);
    found.ok_or_else(|| ApiError::not_acceptable(&Encoding::ALL.map(Encoding::media).join(", ")))
}

/// The encoding of an error: the first plain one that the client accepts, else JSON.
pub fn error_encoding(accept: &str) -> Encoding {
    let clauses = clauses(accept);
    let plain = |clause: &Clause<'_>| {
        let encodings = Encoding::ALL.into_iter().filter(|e| clause.takes(e.media()));
        encodings.filter_map(|e| offer(clause, e, Forms::ALL)).find(|a| a.shape == Shape::Plain).map(|a| a.encoding)
    };
    clauses.iter().find_map(plain).unwrap_or(Encoding::Json)
}

/// The media type of the body, without parameters; JSON if none is given.
pub fn content_type(headers: &HeaderMap) -> String {
    let given = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let media = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if media.is_empty() { "application/json".to_owned() } else { media }
}

/// Checks that a body has a supported media type; 415 otherwise.
pub fn readable(content_type: &str) -> ApiResult<()> {
    if Encoding::ALL.iter().any(|encoding| encoding.media() == content_type) {
        return Ok(());
    }
    Err(ApiError::unsupported_media_type(content_type, &Encoding::ALL.map(Encoding::media).join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubectl_gets_a_table_and_client_go_its_protobuf() {
        let custom = Forms { protobuf: false, tables: true };
        let plain = |accept: &str| negotiate(accept, Forms::ALL, false);
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(plain(kubectl).unwrap().shape, Shape::Table("v1".into()));
        let both = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(plain(both).unwrap().encoding, Encoding::Protobuf);
        assert_eq!(negotiate(both, custom, false).unwrap().encoding, Encoding::Json);
        assert_eq!(negotiate(PROTOBUF, custom, false).unwrap_err().code, 406);
        let question = Forms { tables: false, protobuf: true };
        assert_eq!(negotiate(kubectl, question, false).unwrap().shape, Shape::Plain);
        assert_eq!(plain("application/yaml").unwrap().encoding, Encoding::Yaml);
        assert_eq!(negotiate("application/yaml", Forms::ALL, true).unwrap_err().code, 406);
        let partial = format!("{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
        let accept = negotiate(&partial, custom, false).unwrap();
        assert_eq!((accept.shape, accept.encoding, accept.list), (Shape::Partial, Encoding::Protobuf, true));
        assert_eq!(plain(&format!("{PROTOBUF};as=Table;g=meta.k8s.io;v=v1")).unwrap_err().code, 406);
    }

    #[test]
    fn weights_and_wildcards_count() {
        let encoding = |accept: &str| negotiate(accept, Forms::ALL, false).map(|a| a.encoding);
        assert_eq!(encoding("application/json;q=0.5,application/yaml"), Ok(Encoding::Yaml));
        assert_eq!(encoding("*/*, application/yaml;q=0.1"), Ok(Encoding::Yaml));
        assert_eq!(encoding("*/*"), Ok(Encoding::Json));
        assert_eq!(encoding("application/*"), Ok(Encoding::Json));
        assert_eq!(encoding("application/json;charset=utf-8"), Ok(Encoding::Json));
        assert_eq!(encoding("text/html, application/json"), Ok(Encoding::Json));
        assert_eq!(encoding("text/html").unwrap_err().code, 406);
        let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        assert_eq!(discovery(aggregated, true), Ok((Encoding::Json, true)));
        let binary = aggregated.replace("application/json", PROTOBUF);
        assert_eq!(discovery(&format!("{binary},{aggregated}"), true), Ok((Encoding::Protobuf, true)));
        assert_eq!(discovery(aggregated, false).unwrap_err().code, 406);
        assert_eq!(discovery(&format!("{aggregated},application/yaml"), false), Ok((Encoding::Yaml, false)));
        assert_eq!(routed("application/*", false).unwrap_err().code, 406);
        assert_eq!(routed("text/html, application/json;as=Table;v=v1;g=meta.k8s.io", true), Ok(()));
        assert_eq!(prefer("*/*", &["a/b", "c/d"]), Some("a/b"));
        assert_eq!(prefer("c/*, */*;q=0.1", &["a/b", "c/d"]), Some("c/d"));
        assert_eq!(prefer("e/f", &["a/b"]), None);
        assert_eq!(error_encoding("text/html"), Encoding::Json);
        assert_eq!(error_encoding("application/json;as=Table;g=meta.k8s.io;v=v1, application/yaml"), Encoding::Yaml);
    }
}

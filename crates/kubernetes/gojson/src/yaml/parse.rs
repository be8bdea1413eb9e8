//! The nodes of a YAML document, and the parser's errors. Follows libyaml's grammar.

use super::scan::{Fault, Kind, Mark, Scanner};
use crate::YamlError;

/// Content of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum Held {
    /// Text, its tag (empty if it has none) and whether it is plain.
    Scalar(String, String, bool),
    /// Items.
    Sequence(Vec<usize>),
    /// Keys and values.
    Mapping(Vec<(usize, usize)>),
    /// The node of an anchor, and the anchor.
    Alias(usize, String),
}

/// A node of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its content.
    pub held: Held,
    /// Its line, counted from 0.
    pub line: usize,
}

/// A document's nodes.
pub struct Document {
    /// All nodes, in the order in which they begin.
    pub nodes: Vec<Node>,
    /// The outermost one.
    pub root: usize,
}

/// Reads documents.
pub struct Parser {
    scanner: Scanner,
    nodes: Vec<Node>,
    anchors: std::collections::HashMap<String, usize>,
    handles: Vec<(String, String)>,
    depth: usize,
    first: bool,
}

/// The kinds of node that are allowed at a place.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// In a block.
    Block,
    /// In a block, where a list needs no indentation.
    Indentless,
    /// Within brackets or braces.
    Flow,
}

impl Parser {
    /// Over a text, with a limit of nesting.
    pub fn new(text: Vec<char>, depth: usize) -> Self {
        let scanner = Scanner::new(text);
        Self { scanner, nodes: Vec::new(), anchors: Default::default(), handles: Vec::new(), depth, first: true }
    }

    /// The next document; `None` after the last.
    pub fn document(&mut self) -> Result<Option<Document>, YamlError> {
        self.nodes.clear();
        self.anchors.clear();
        self.handles.clear();
        while !self.first && self.scanner.peek()?.kind == Kind::DocumentEnd {
            self.scanner.take()?;
        }
        let implicit = std::mem::take(&mut self.first);
        let token = self.scanner.peek()?;
        let (start, bare) =
            (token.start, !matches!(token.kind, Kind::Version(..) | Kind::TagDirective(..) | Kind::DocumentStart));
        if token.kind == Kind::End {
            return Ok(None);
        }
        self.directives()?;
        let root = if implicit && bare {
            self.node(Place::Block)?
        } else {
            let token = self.scanner.peek()?;
            if token.kind != Kind::DocumentStart {
                let at = token.start;
                return Err(Fault::parsed(Mark::default(), "did not find expected <document start>", at).into());
            }
            self.scanner.take()?;
            match self.scanner.peek()?.kind {
                Kind::Version(..) | Kind::TagDirective(..) | Kind::DocumentStart | Kind::DocumentEnd | Kind::End => {
                    self.empty(start)
                }
                _ => self.node(Place::Block)?,
            }
        };
        if self.scanner.peek()?.kind == Kind::DocumentEnd {
            self.scanner.take()?;
        }
        Ok(Some(Document { nodes: std::mem::take(&mut self.nodes), root }))
    }

    fn directives(&mut self) -> Result<(), YamlError> {
        let mut version = false;
        loop {
            let token = self.scanner.peek()?;
            let wrong = |problem: &str| Err(Fault::parsed(Mark::default(), problem, token.start).into());
            match &token.kind {
                Kind::Version(..) if version => return wrong("found duplicate %YAML directive"),
                Kind::Version(1, 1) => version = true,
                Kind::Version(..) => return wrong("found incompatible YAML document"),
                Kind::TagDirective(handle, _) if self.handles.iter().any(|(h, _)| h == handle) => {
                    return wrong("found duplicate %TAG directive");
                }
                Kind::TagDirective(handle, prefix) => self.handles.push((handle.clone(), prefix.clone())),
                _ => break,
            }
            self.scanner.take()?;
        }
        for (handle, prefix) in [("!", "!"), ("!!", super::resolve::LONG)] {
            if !self.handles.iter().any(|(h, _)| h == handle) {
                self.handles.push((handle.to_owned(), prefix.to_owned()));
            }
        }
        Ok(())
    }

    fn push(&mut self, held: Held, at: Mark) -> usize {
        self.nodes.push(Node { held, line: at.line });
        self.nodes.len() - 1
    }

    /// A scalar that is not there.
    fn empty(&mut self, at: Mark) -> usize {
        self.push(Held::Scalar(String::new(), String::new(), true), at)
    }

    fn node(&mut self, place: Place) -> Result<usize, YamlError> {
        let token = self.scanner.peek()?.clone();
        if let Kind::Alias(name) = token.kind {
            self.scanner.take()?;
            let known = self.anchors.get(&name).copied();
            let known = known.ok_or_else(|| YamlError::UnknownAnchor(name.clone()))?;
            return Ok(self.push(Held::Alias(known, name), token.start));
        }
        let start = token.start;
        let (mut anchor, mut tag) = (None, None);
        loop {
            let token = self.scanner.peek()?.clone();
            match token.kind {
                Kind::Anchor(name) if anchor.is_none() => anchor = Some(name),
                Kind::Tag(handle, suffix) if tag.is_none() => tag = Some((handle, suffix, token.start)),
                _ => break,
            }
            self.scanner.take()?;
        }
        let tag = match tag {
            None => String::new(),
            Some((handle, suffix, _)) if handle.is_empty() => suffix,
            Some((handle, suffix, at)) => match self.handles.iter().find(|(h, _)| *h == handle) {
                Some((_, prefix)) => format!("{prefix}{suffix}"),
                None => return Err(Fault::parsed(start, "found undefined tag handle", at).into()),
            },
        };
        let token = self.scanner.peek()?;
        let at = token.start;
        let held = match &token.kind {
            Kind::Entry if place == Place::Indentless => Held::Sequence(Vec::new()),
            Kind::Scalar(text, plain) => {
                let (plain, tag) = (if tag.is_empty() { *plain } else { tag == "!" }, tag.clone());
                Held::Scalar(text.clone(), tag, plain)
            }
            Kind::Bracket => Held::Sequence(Vec::new()),
            Kind::Brace => Held::Mapping(Vec::new()),
            Kind::SequenceStart if place != Place::Flow => Held::Sequence(Vec::new()),
            Kind::MappingStart if place != Place::Flow => Held::Mapping(Vec::new()),
            _ if anchor.is_some() || !tag.is_empty() => {
                let plain = tag.is_empty();
                let made = self.push(Held::Scalar(String::new(), tag, plain), start);
                self.anchors.extend(anchor.map(|anchor| (anchor, made)));
                return Ok(made);
            }
            _ => return Err(Fault::parsed(start, "did not find expected node content", at).into()),
        };
        let kind = token.kind.clone();
        let made = self.push(held, start);
        // An alias may refer to an anchor from within the anchor's own node.
        self.anchors.extend(anchor.map(|anchor| (anchor, made)));
        if let Kind::Scalar(..) = kind {
            self.scanner.take()?;
            return Ok(made);
        }
        self.depth = self.depth.checked_sub(1).ok_or(YamlError::Depth)?;
        let held = match kind {
            Kind::Entry => Held::Sequence(self.indentless()?),
            Kind::SequenceStart => Held::Sequence(self.block_sequence(at)?),
            Kind::MappingStart => Held::Mapping(self.block_mapping(at)?),
            Kind::Bracket => Held::Sequence(self.flow_sequence(at)?),
            _ => Held::Mapping(self.flow_mapping(at)?),
        };
        self.depth += 1;
        self.nodes[made].held = held;
        Ok(made)
    }

    fn block_sequence(&mut self, start: Mark) -> Result<Vec<usize>, YamlError> {
        self.scanner.take()?;
        let mut items = Vec::new();
        loop {
            match self.scanner.take_one(start, "did not find expected '-' indicator", |kind| {
                matches!(kind, Kind::Entry | Kind::BlockEnd)
            })? {
                (Kind::Entry, at) => items.push(match self.scanner.peek()?.kind {
                    Kind::Entry | Kind::BlockEnd => self.empty(at),
                    _ => self.node(Place::Block)?,
                }),
                _ => return Ok(items),
            }
        }
    }

    fn indentless(&mut self) -> Result<Vec<usize>, YamlError> {
        let mut items = Vec::new();
        while self.scanner.peek()?.kind == Kind::Entry {
            let at = self.scanner.take()?.end;
            items.push(match self.scanner.peek()?.kind {
                Kind::Entry | Kind::Key | Kind::Value | Kind::BlockEnd => self.empty(at),
                _ => self.node(Place::Block)?,
            });
        }
        Ok(items)
    }

    fn block_mapping(&mut self, start: Mark) -> Result<Vec<(usize, usize)>, YamlError> {
        self.scanner.take()?;
        let mut members = Vec::new();
        loop {
            let key = match self
                .scanner
                .take_one(start, "did not find expected key", |kind| matches!(kind, Kind::Key | Kind::BlockEnd))?
            {
                (Kind::Key, at) => self.block_part(at)?,
                _ => return Ok(members),
            };
            let token = self.scanner.peek()?;
            let value = if token.kind == Kind::Value {
                let at = self.scanner.take()?.end;
                self.block_part(at)?
            } else {
                let at = token.start;
                self.empty(at)
            };
            members.push((key, value));
        }
    }

    /// A key or value of a mapping in lines, which may be empty.
    fn block_part(&mut self, at: Mark) -> Result<usize, YamlError> {
        match self.scanner.peek()?.kind {
            Kind::Key | Kind::Value | Kind::BlockEnd => Ok(self.empty(at)),
            _ => self.node(Place::Indentless),
        }
    }

    fn flow_sequence(&mut self, start: Mark) -> Result<Vec<usize>, YamlError> {
        self.scanner.take()?;
        let mut items = Vec::new();
        loop {
            if self.scanner.peek()?.kind == Kind::BracketEnd {
                break;
            }
            if !items.is_empty() {
                self.scanner.take_one(start, "did not find expected ',' or ']'", |kind| *kind == Kind::Comma)?;
            }
            let token = self.scanner.peek()?;
            match token.kind {
                Kind::BracketEnd => break,
                Kind::Key => {
                    let at = self.scanner.take()?.start;
                    let made = self.push(Held::Mapping(Vec::new()), at);
                    let pair = self.flow_pair()?;
                    self.nodes[made].held = Held::Mapping(vec![pair]);
                    items.push(made);
                }
                _ => items.push(self.node(Place::Flow)?),
            }
        }
        self.scanner.take()?;
        Ok(items)
    }

    /// The one key and value of a mapping without braces.
    fn flow_pair(&mut self) -> Result<(usize, usize), YamlError> {
        let token = self.scanner.peek()?;
        let at = token.end;
        let key = match token.kind {
            Kind::Value | Kind::Comma | Kind::BracketEnd => {
                // The token here is skipped, even a comma.
                self.scanner.take()?;
                self.empty(at)
            }
            _ => self.node(Place::Flow)?,
        };
        let mut at = self.scanner.peek()?.start;
        if self.scanner.peek()?.kind == Kind::Value {
            self.scanner.take()?;
            let token = self.scanner.peek()?;
            if !matches!(token.kind, Kind::Comma | Kind::BracketEnd) {
                return Ok((key, self.node(Place::Flow)?));
            }
            at = token.start;
        }
        Ok((key, self.empty(at)))
    }

    fn flow_mapping(&mut self, start: Mark) -> Result<Vec<(usize, usize)>, YamlError> {
        self.scanner.take()?;
        let mut members = Vec::new();
        loop {
            if self.scanner.peek()?.kind == Kind::BraceEnd {
                break;
            }
            if !members.is_empty() {
                self.scanner.take_one(start, "did not find expected ',' or '}'", |kind| *kind == Kind::Comma)?;
            }
            match self.scanner.peek()?.kind {
                Kind::BraceEnd => break,
                Kind::Key => {
                    self.scanner.take()?;
                    let token = self.scanner.peek()?;
                    let at = token.start;
                    let key = match token.kind {
                        Kind::Value | Kind::Comma | Kind::BraceEnd => self.empty(at),
                        _ => self.node(Place::Flow)?,
                    };
                    let value = self.flow_value()?;
                    members.push((key, value));
                }
                _ => {
                    let key = self.node(Place::Flow)?;
                    let at = self.scanner.peek()?.start;
                    let value = self.empty(at);
                    members.push((key, value));
                }
            }
        }
        self.scanner.take()?;
        Ok(members)
    }

    fn flow_value(&mut self) -> Result<usize, YamlError> {
        if self.scanner.peek()?.kind == Kind::Value {
            self.scanner.take()?;
            if !matches!(self.scanner.peek()?.kind, Kind::Comma | Kind::BraceEnd) {
                return self.node(Place::Flow);
            }
        }
        let at = self.scanner.peek()?.start;
        Ok(self.empty(at))
    }
}

impl Scanner {
    /// Takes the next token, which must match, and returns it with its end.
    fn take_one(&mut self, start: Mark, problem: &str, wanted: impl Fn(&Kind) -> bool) -> Result<(Kind, Mark), Fault> {
        let token = self.peek()?;
        if !wanted(&token.kind) {
            return Err(Fault::parsed(start, problem, token.start));
        }
        let token = self.take()?;
        Ok((token.kind, token.end))
    }
}

//! Functions of the authorizer (`library/authz.go`).

use std::sync::Arc;

use crate::ext::Ext;
use crate::ext::authz::{Authorization, Authorizer, GroupCheck, PathCheck, Request, ResourceCheck};
use crate::fault::Fault;
use crate::value::{Outcome, Value};

impl Authorization {
    /// The value of the variable `authorizer`.
    pub fn value(judge: Arc<dyn Authorizer>) -> Value {
        Value::Ext(Arc::new(Ext::Authorizer(Self { judge, request: Request::default() })))
    }

    /// The value of the variable `authorizer.requestResource`: a check of this resource.
    pub fn resource(judge: Arc<dyn Authorizer>, request: Request) -> Value {
        Value::Ext(Arc::new(Ext::ResourceCheck(ResourceCheck(Self { judge, request }))))
    }
}

fn ext(value: Ext) -> Value {
    Value::Ext(Arc::new(value))
}

pub(super) fn call(name: &str, args: &[Value]) -> Option<Outcome> {
    let Some((Value::Ext(receiver), rest)) = args.split_first() else { return None };
    let texts: Option<Vec<&str>> =
        rest.iter().map(|v| if let Value::String(s) = v { Some(&**s) } else { None }).collect();
    let texts = texts?;
    Some(match (&**receiver, name, texts.as_slice()) {
        (Ext::Authorizer(_), "path", [""]) => Err(Fault::new("path must not be empty")),
        (Ext::Authorizer(a), "path", [path]) => {
            Ok(ext(Ext::PathCheck(PathCheck(a.with(|r| r.path = Some((*path).to_owned()))))))
        }
        (Ext::Authorizer(a), "group", [group]) => {
            Ok(ext(Ext::GroupCheck(GroupCheck(a.with(|r| r.group = (*group).to_owned())))))
        }
        (Ext::Authorizer(a), "serviceAccount", [namespace, account]) => service_account(a, namespace, account),
        (Ext::GroupCheck(_), "resource", [""]) => Err(Fault::new("resource must not be empty")),
        (Ext::GroupCheck(GroupCheck(a)), "resource", [resource]) => {
            Ok(ext(Ext::ResourceCheck(ResourceCheck(a.with(|r| r.resource = (*resource).to_owned())))))
        }
        (Ext::ResourceCheck(ResourceCheck(a)), "check", [verb]) => Ok(decide(a, verb)),
        (Ext::PathCheck(PathCheck(a)), "check", [verb]) => Ok(decide(a, verb)),
        (Ext::ResourceCheck(ResourceCheck(a)), name, [text]) => {
            let text = (*text).to_owned();
            let set: fn(&mut Request, String) = match name {
                "subresource" => |r, t| r.subresource = t,
                "namespace" => |r, t| r.namespace = t,
                "name" => |r, t| r.name = t,
                "fieldSelector" => |r, t| r.field_selector = t,
                "labelSelector" => |r, t| r.label_selector = t,
                _ => return None,
            };
            Ok(ext(Ext::ResourceCheck(ResourceCheck(a.with(|r| set(r, text))))))
        }
        (Ext::Decision(d), name, []) => Ok(match name {
            "allowed" => Value::Bool(d.allowed),
            "reason" => Value::string(&d.reason),
            "errored" => Value::Bool(d.error.is_some()),
            "error" => Value::string(d.error.as_deref().unwrap_or_default()),
            _ => return None,
        }),
        _ => return None,
    })
}

fn decide(check: &Authorization, verb: &str) -> Value {
    let request = Request { verb: verb.to_owned(), ..check.request.clone() };
    ext(Ext::Decision(check.judge.authorize(&request)))
}

fn service_account(a: &Authorization, namespace: &str, account: &str) -> Outcome {
    let label = |s: &str, dots: bool| {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || (dots && b == b'.');
        let ends = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
        let bytes = s.as_bytes();
        s.len() <= if dots { 253 } else { 63 } && s.bytes().all(allowed) && ends(bytes.first()) && ends(bytes.last())
    };
    if !label(account, true) {
        return Err(Fault::new("Invalid service account name"));
    }
    if !label(namespace, false) {
        return Err(Fault::new("Invalid service account namespace"));
    }
    let who = Some((namespace.to_owned(), account.to_owned()));
    Ok(ext(Ext::Authorizer(a.with(|r| r.service_account = who))))
}

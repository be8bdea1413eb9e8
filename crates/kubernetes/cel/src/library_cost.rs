//! Cost estimates of Kubernetes' own functions (`k8s.io/apiserver/pkg/cel/library/cost.go`).

use crate::ast::Kind;
use crate::cost::{CallCost, Cost, Node, Size, or_unknown};
use crate::meter::{AUTHORIZE, PATTERN, TRAVERSAL};
use crate::sizes::Sizes;
use crate::types::Type;
use crate::value::Value;

/// The longest pattern of a named format.
const FORMAT_PATTERN: f64 = 128.0;
/// The longest name of a format.
const FORMAT_SIZE: u64 = 64;

/// The cost of a call without its arguments; `None` for cel-go's own functions.
pub(crate) fn estimate(
    sizes: &dyn Sizes,
    function: &str,
    overload: &str,
    target: Option<&Node<'_>>,
    args: &[Node<'_>],
) -> Option<CallCost> {
    let plain = |cost: Cost| Some(CallCost { cost, result: None });
    let sets = match overload {
        "list_sets_contains_list" | "list_sets_intersects_list" => Some(1.0),
        "list_sets_equivalent_list" => Some(2.0),
        _ => None,
    };
    if let (Some(factor), [a, b]) = (sets, args) {
        return plain(or_unknown(a).times(or_unknown(b)).by(factor).plus(Cost::fixed(1)));
    }
    match (function, target, args) {
        ("check", ..) => plain(Cost::fixed(AUTHORIZE)),
        (
            "serviceAccount"
            | "path"
            | "group"
            | "resource"
            | "subresource"
            | "namespace"
            | "name"
            | "allowed"
            | "reason"
            | "error"
            | "errored"
            | "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast"
            | "sign"
            | "asInteger"
            | "isInteger"
            | "asApproximateFloat"
            | "isGreaterThan"
            | "isLessThan"
            | "compareTo"
            | "add"
            | "sub"
            | "major"
            | "minor"
            | "patch"
            | "getScheme"
            | "getHostname"
            | "getHost"
            | "getPort"
            | "getEscapedPath"
            | "getQuery"
            | "format.named",
            ..,
        ) => plain(Cost::fixed(1)),
        ("fieldSelector" | "labelSelector", _, [arg]) => {
            let size = or_unknown(arg);
            plain(Cost::fixed(10).plus(size.by(TRAVERSAL)).plus(size.by(0.5).by(50.0)))
        }
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => {
            plain(traversal(sizes, target))
        }
        ("validate", _, [arg, ..]) => plain(or_unknown(arg).by(TRAVERSAL).by(FORMAT_PATTERN * PATTERN)),
        ("_==_", _, [left, right]) => equality(left, right),
        _ => net(function, overload, args).or_else(|| text(sizes, function, target, args)),
    }
}

fn element_size(sizes: &dyn Sizes, list: &Node<'_>) -> Option<(Type, Size)> {
    let element = match list.ty {
        Type::List(of) | Type::Map(of, _) | Type::Optional(of) | Type::Type(Some(of)) => (**of).clone(),
        _ => return None,
    };
    let mut path = list.path.clone();
    let size = if path.is_empty() {
        None
    } else {
        path.push("@items".to_owned());
        sizes.max_size(&path).map(|max| Size { min: 0, max })
    };
    Some((element, size.unwrap_or(Cost::UNKNOWN)))
}

fn traversal(sizes: &dyn Sizes, target: &Node<'_>) -> Cost {
    let Some((ty, size)) = element_size(sizes, target) else {
        return or_unknown(target).by(TRAVERSAL);
    };
    let mut each = Cost::fixed(1);
    if matches!(ty, Type::String | Type::Bytes) {
        each = each.plus(size.by(TRAVERSAL));
    }
    or_unknown(target).times(each)
}

fn net(function: &str, overload: &str, args: &[Node<'_>]) -> Option<CallCost> {
    let plain = |cost: Cost| Some(CallCost { cost, result: None });
    let arg = args.first();
    let address = Size { min: 4, max: 16 };
    match function {
        "ip" if overload == "cidr_ip" => plain(Cost::fixed(1)),
        "ip" | "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
            plain(or_unknown(arg?).by(TRAVERSAL))
        }
        "ip.isCanonical" => plain(or_unknown(arg?).by(2.0 * TRAVERSAL)),
        "containsIP" | "containsCIDR" => {
            let mut cost = address.plus(address).by(TRAVERSAL);
            if function == "containsCIDR" {
                cost = cost.plus(address.by(TRAVERSAL)).plus(Cost::fixed(1));
            }
            if overload.ends_with("_string") {
                cost = cost.plus(or_unknown(arg?).by(TRAVERSAL));
            }
            plain(cost)
        }
        _ => None,
    }
}

fn text(sizes: &dyn Sizes, function: &str, target: Option<&Node<'_>>, args: &[Node<'_>]) -> Option<CallCost> {
    let with = |cost: Cost, result: Size| Some(CallCost { cost, result: Some(result) });
    match (function, target, args) {
        ("url", _, [arg]) => with(or_unknown(arg).by(TRAVERSAL), or_unknown(arg)),
        ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target), _) => {
            with(or_unknown(target).by(TRAVERSAL), or_unknown(target))
        }
        ("replace", Some(target), [old, new, ..]) => {
            let size = or_unknown(target);
            with(size.by(2.0 * TRAVERSAL), replaced(size, or_unknown(old), or_unknown(new)))
        }
        ("split", Some(target), args) => {
            let size = or_unknown(target);
            let max = match args.get(1).map(|a| &a.expr.kind) {
                Some(Kind::Literal(Value::Int(n))) => *n as u64,
                _ => size.max,
            };
            with(size.by(2.0 * TRAVERSAL), Size { min: 0, max })
        }
        ("join", Some(target), args) => {
            let count = or_unknown(target);
            let mut size = match element_size(sizes, target) {
                Some((_, element)) => count.times(element),
                None => Cost::fixed(0),
            };
            if let Some(separator) = args.first() {
                let gaps = Size { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
                size = size.plus(or_unknown(separator).times(gaps));
            }
            with(size.by(TRAVERSAL), size)
        }
        ("find" | "findAll", Some(target), [pattern, ..]) => {
            let size = or_unknown(target);
            let text = size.plus(Cost::fixed(1)).by(TRAVERSAL);
            with(text.times(or_unknown(pattern).by(PATTERN)), Size { min: 0, max: size.max })
        }
        _ => None,
    }
}

fn replaced(size: Size, old: Size, new: Size) -> Size {
    let ceil = |a: u64, b: u64| (a as f64 / b as f64).ceil() as u64;
    let (mut count, mut kept) = (Cost::fixed(0), Cost::fixed(0));
    if old.min == 0 {
        count.max = size.max.saturating_add(1);
        kept.max = size.max;
    } else if new.max <= old.min {
        kept.max = size.max;
    } else {
        count.max = ceil(size.max, old.min);
    }
    if old.max == 0 {
        count.min = size.min.saturating_add(1);
        kept.min = size.min;
    } else if old.max <= new.min {
        kept.min = size.min;
    } else {
        count.min = ceil(size.min, old.max);
    }
    count.times(new).plus(kept)
}

fn equality(left: &Node<'_>, right: &Node<'_>) -> Option<CallCost> {
    let plain = |cost: Cost| Some(CallCost { cost, result: None });
    if left.ty != right.ty {
        return None;
    }
    match left.ty {
        Type::Opaque(name) if matches!(&**name, "net.IP" | "net.CIDR") => plain(Cost::fixed(1)),
        Type::Object(name) => match &**name {
            "kubernetes.NamedFormat" => plain(Cost { min: 1, max: FORMAT_SIZE }.by(TRAVERSAL)),
            "kubernetes.URL" => {
                let max = right.size.map_or(1, |s| s.max);
                plain(Cost { min: 1, max }.by(TRAVERSAL))
            }
            "kubernetes.Quantity" | "kubernetes.Semver" => plain(Cost::fixed(1)),
            name if name.starts_with("kubernetes.authorization.") => plain(Cost::fixed(1)),
            _ => None,
        },
        _ => None,
    }
}

//! Services: defaults and validation. [`crate::allocation`] assigns addresses and ports; no proxy implements them.

mod update;

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::checks::{all_invalid, annotation, formats, labels, list, member, text};
use crate::object::{Object, child};
use crate::resource::Resource;
use crate::status::{FieldError, FieldErrorKind};
use crate::strategy::{Findings, Kind, MetadataChecks, Strategy, Writing, masked};

use update::prepare_update;
pub use update::{needs_health_check, needs_node_port, node_port};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const MODE: &str = "service.kubernetes.io/topology-mode";
const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// The kind's row in the table.
pub const KIND: Kind = Kind {
    kind: "Service",
    plural: "services",
    short_names: &["svc"],
    categories: &["all"],
    status: true,
    strategy: &Service,
    ..Kind::NEW
};

/// The rules of Services.
#[derive(Debug)]
struct Service;

impl Strategy for Service {
    fn defaults(&self, object: &mut Object) {
        defaults(object);
    }

    fn prepare_create(&self, object: &mut Object) {
        prepare_create(object);
    }

    fn prepare_update(&self, object: &mut Object, old: &Object) {
        prepare_update(object, old);
    }

    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(object, writing.old, writing.sub, &mut found.errors);
    }

    fn warnings(&self, _: &Writing<'_>, object: &Object) -> Vec<String> {
        warnings(object)
    }

    fn wrong_name(&self, _: &Object, name: &str, prefix: bool) -> Vec<String> {
        names::dns_1035_label(&masked(name, prefix))
    }

    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::CoreTwice
    }

    fn parts_take_metadata(&self) -> bool {
        true
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }

    fn registry_folder(&self, _: &Resource) -> String {
        "services/specs".to_owned()
    }

    fn takes_addresses(&self) -> bool {
        true
    }

    fn usage(&self, object: &Object) -> Vec<(&'static str, i64)> {
        usage(object)
    }

    fn selectable(&self) -> &'static [(&'static str, &'static str)] {
        &[("spec.clusterIP", ""), ("spec.type", "")]
    }

    fn converts_field_labels(&self) -> bool {
        true
    }
}

/// The quota usage of a Service: node ports, and load balancers.
fn usage(object: &Object) -> Vec<(&'static str, i64)> {
    let spec = member(object, "spec");
    let ports = list(spec, "ports");
    let given = ports.iter().filter(|port| node_port(port) != 0).count();
    let count = if needs_node_port(spec) { ports.len() } else { given };
    let exposed = matches!(text(spec, "type"), "NodePort" | "LoadBalancer");
    let ports = if exposed { i64::try_from(count).unwrap_or(i64::MAX) } else { 0 };
    vec![("services.nodeports", ports), ("services.loadbalancers", i64::from(text(spec, "type") == "LoadBalancer"))]
}

/// Fills in the defaults of a Service.
fn defaults(object: &mut Object) {
    let spec = child(object, "spec");
    if spec_text(spec, "sessionAffinity").is_empty() {
        spec.insert("sessionAffinity".into(), json!("None"));
    }
    match spec_text(spec, "sessionAffinity") {
        "None" => {
            spec.shift_remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let given = spec.get("sessionAffinityConfig").and_then(|c| c.pointer("/clientIP/timeoutSeconds"));
            if given.is_none_or(Value::is_null) {
                spec.insert("sessionAffinityConfig".into(), json!({"clientIP": {"timeoutSeconds": 10_800}}));
            }
        }
        _ => {}
    }
    if spec_text(spec, "type").is_empty() {
        spec.insert("type".into(), json!("ClusterIP"));
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(port) = port.as_object_mut() else { continue };
        if spec_text(port, "protocol").is_empty() {
            port.insert("protocol".into(), json!("TCP"));
        }
        let target = port.get("targetPort").unwrap_or(&Value::Null);
        if target.is_null() || *target == json!(0) || *target == json!("") {
            let number = port.get("port").cloned().unwrap_or(json!(0));
            port.insert("targetPort".into(), number);
        }
    }
    let kind = spec_text(spec, "type").to_owned();
    if externally_accessible(&Value::Object(spec.clone())) && spec_text(spec, "externalTrafficPolicy").is_empty() {
        spec.insert("externalTrafficPolicy".into(), json!("Cluster"));
    }
    let internal = matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP");
    if internal && spec_text(spec, "internalTrafficPolicy").is_empty() {
        spec.insert("internalTrafficPolicy".into(), json!("Cluster"));
    }
    if kind == "LoadBalancer" && spec.get("allocateLoadBalancerNodePorts").is_none_or(Value::is_null) {
        spec.insert("allocateLoadBalancerNodePorts".into(), json!(true));
    }
    if kind == "LoadBalancer" {
        ip_modes(object);
    }
}

fn ip_modes(object: &mut Object) {
    let ingress = object.get_mut("status").and_then(|s| s.pointer_mut("/loadBalancer/ingress"));
    for one in ingress.and_then(Value::as_array_mut).into_iter().flatten() {
        if !text(one, "ip").is_empty() && text(one, "ipMode").is_empty() {
            one["ipMode"] = json!("VIP");
        }
    }
}

fn spec_text<'a>(spec: &'a Object, key: &str) -> &'a str {
    spec.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Fields that upstream's allocator sets on a new Service besides addresses and ports: IP families.
fn prepare_create(object: &mut Object) {
    object.shift_remove("status");
    let spec = child(object, "spec");
    let one = spec_text(spec, "clusterIP").to_owned();
    if !one.is_empty() && list(&Value::Object(spec.clone()), "clusterIPs").is_empty() {
        spec.insert("clusterIPs".into(), json!([one]));
    }
    families(spec);
}

fn families(spec: &mut Object) {
    if spec_text(spec, "type") == "ExternalName" {
        return;
    }
    // Endpoints managed by another controller may have addresses of any family.
    let selectorless = spec.get("selector").and_then(Value::as_object).is_none_or(Object::is_empty);
    let free = spec_text(spec, "clusterIP") == "None" && selectorless;
    let first = spec.get("clusterIPs").and_then(|c| c.get(0)).and_then(Value::as_str).and_then(formats::sloppy_ip);
    let family = if first.is_some_and(|ip| !formats::is_ipv4(&ip)) { "IPv6" } else { "IPv4" };
    // An unsupported family is not derived from an address: validation of the address reports it.
    let unnamed = spec.get("ipFamilies").and_then(Value::as_array).is_none_or(Vec::is_empty);
    if unnamed && family == "IPv4" {
        spec.insert("ipFamilies".into(), json!([family]));
    }
    if spec_text(spec, "ipFamilyPolicy").is_empty() {
        let policy = if free { "RequireDualStack" } else { "SingleStack" };
        spec.insert("ipFamilyPolicy".into(), json!(policy));
    }
    if free
        && spec_text(spec, "ipFamilyPolicy") != "SingleStack"
        && let Some(families) = spec.get_mut("ipFamilies").and_then(Value::as_array_mut)
        && families.len() == 1
    {
        let other = if families[0] == json!("IPv4") { "IPv6" } else { "IPv4" };
        families.push(json!(other));
    }
}

/// Whether it is reachable from outside the cluster.
fn externally_accessible(spec: &Value) -> bool {
    let kind = text(spec, "type");
    kind == "LoadBalancer" || kind == "NodePort" || kind == "ClusterIP" && !list(spec, "externalIPs").is_empty()
}

fn headless(spec: &Value) -> bool {
    matches!(list(spec, "clusterIPs"), [Value::String(one)] if one == "None")
}

/// Validates a Service; `sub` is the subresource of the write.
fn validate(object: &Object, old: Option<&Object>, sub: &str, errors: &mut Vec<FieldError>) {
    let spec = member(object, "spec");
    if sub == "status" {
        balancer_status(object, errors);
        return;
    }
    // Upstream's allocator validates first, and only its errors are reported.
    let unfit = before_allocation(spec);
    if !unfit.is_empty() {
        errors.extend(unfit);
        return;
    }
    if let Some(old) = old {
        update::check(spec, member(old, "spec"), errors);
    }
    if let (Some(mode), Some(hints)) = (annotation(object, MODE), annotation(object, HINTS))
        && mode != hints
    {
        let detail = format!("must match annotations[{HINTS}] when both are specified");
        errors.push(FieldError::invalid(format!("metadata.annotations[{MODE}]"), &json!(mode), detail));
    }
    let kind = text(spec, "type");
    if list(spec, "ports").is_empty() && !headless(spec) && kind != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    by_type(spec, kind, errors);
    ports(spec, errors);
    labels("spec.selector", spec.get("selector").unwrap_or(&Value::Null), errors);
    affinity(spec, errors);
    for (at, ip) in list(spec, "externalIPs").iter().enumerate() {
        let (field, ip) = (format!("spec.externalIPs[{at}]"), ip.as_str().unwrap_or_default());
        if formats::legacy_ip(&field, ip, errors).is_some() {
            formats::endpoint_ip(&field, ip, errors);
        }
    }
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported("spec.type", &json!(kind), &kinds));
    }
    port_numbers(spec, kind, errors);
    source_ranges(object, kind, errors);
    balancer(spec, kind, errors);
    traffic(spec, kind, errors);
}

/// Errors that prevent the assignment of addresses.
pub fn before_allocation(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if text(spec, "type") == "ExternalName" {
        return errors;
    }
    addresses(spec, &mut errors);
    if errors.is_empty() {
        unconfigured(spec, &mut errors);
    }
    errors
}

/// Errors of Services that need a dual-stack cluster.
fn unconfigured(spec: &Value, errors: &mut Vec<FieldError>) {
    let (all, families) = (list(spec, "clusterIPs"), list(spec, "ipFamilies"));
    if text(spec, "ipFamilyPolicy") == "SingleStack" {
        for what in [(all.len() > 1).then_some("cluster IPs"), (families.len() > 1).then_some("IP families")] {
            let Some(what) = what else { continue };
            let detail = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            errors.push(FieldError::invalid("spec.ipFamilyPolicy", &json!("SingleStack"), detail));
        }
    }
    let other = |ip: &Value| ip.as_str().and_then(formats::sloppy_ip).is_some_and(|ip| !formats::is_ipv4(&ip));
    for (at, _) in all.iter().enumerate().skip(families.len()).filter(|(_, ip)| other(ip)) {
        let detail = "IPv6 is not configured on this cluster";
        let value = spec.get("clusterIPs").unwrap_or(&Value::Null);
        errors.push(FieldError::invalid(format!("spec.clusterIPs[{at}]"), value, detail));
    }
    let selectorless = spec.get("selector").and_then(Value::as_object).is_none_or(Object::is_empty);
    if !errors.is_empty() || text(spec, "clusterIP") == "None" && selectorless {
        return;
    }
    if text(spec, "ipFamilyPolicy") == "RequireDualStack" {
        let detail = "this cluster is not configured for dual-stack services";
        errors.push(FieldError::invalid("spec.ipFamilyPolicy", &json!("RequireDualStack"), detail));
    }
    for (at, family) in families.iter().enumerate().filter(|(_, f)| **f != json!("IPv4")) {
        let detail = "not configured on this cluster";
        errors.push(FieldError::invalid(format!("spec.ipFamilies[{at}]"), family, detail));
    }
}

fn by_type(spec: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    match kind {
        "LoadBalancer" | "NodePort" if headless(spec) => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid("spec.clusterIPs[0]", &json!("None"), detail));
        }
        "ExternalName" => {
            let detail = "may not be set for ExternalName services";
            for key in ["clusterIPs", "ipFamilies"] {
                if !list(spec, key).is_empty() {
                    errors.push(FieldError::forbidden(format!("spec.{key}"), detail));
                }
            }
            if spec.get("ipFamilyPolicy").is_some_and(|p| !p.is_null()) {
                errors.push(FieldError::forbidden("spec.ipFamilyPolicy", detail));
            }
            let name = text(spec, "externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
            if name.is_empty() {
                errors.push(FieldError::required("spec.externalName", ""));
            } else {
                all_invalid("spec.externalName", &json!(name), names::dns_1123_subdomain(name), errors);
            }
        }
        _ => {}
    }
}

fn ports(spec: &Value, errors: &mut Vec<FieldError>) {
    let ports = list(spec, "ports");
    for (at, port) in ports.iter().enumerate() {
        let field = |key: &str| format!("spec.ports[{at}].{key}");
        let name = text(port, "name");
        if name.is_empty() && ports.len() > 1 {
            errors.push(FieldError::required(field("name"), ""));
        } else if !name.is_empty() {
            all_invalid(&field("name"), &json!(name), names::dns_1123_label(name), errors);
            if ports.iter().take(at).any(|other| text(other, "name") == name) {
                errors.push(FieldError::duplicate(field("name"), &json!(name)));
            }
        }
        let number = port.get("port").and_then(Value::as_i64).unwrap_or_default();
        all_invalid(&field("port"), &json!(number), formats::port_number(number), errors);
        protocol(&field("protocol"), port, errors);
        match port.get("targetPort") {
            Some(Value::String(name)) => {
                all_invalid(&field("targetPort"), &json!(name), formats::port_name(name), errors);
            }
            target => {
                let number = target.and_then(Value::as_i64).unwrap_or_default();
                all_invalid(&field("targetPort"), &json!(number), formats::port_number(number), errors);
            }
        }
        app_protocol(&field("appProtocol"), port, errors);
    }
}

/// Checks the protocol of a port.
pub fn protocol(field: &str, port: &Value, errors: &mut Vec<FieldError>) {
    match text(port, "protocol") {
        "" => errors.push(FieldError::required(field, "")),
        given if !PROTOCOLS.contains(&given) => {
            errors.push(FieldError::not_supported(field, &json!(given), &PROTOCOLS))
        }
        _ => {}
    }
}

/// Checks the application protocol of a port.
pub fn app_protocol(field: &str, port: &Value, errors: &mut Vec<FieldError>) {
    if let Some(given) = port.get("appProtocol").and_then(Value::as_str) {
        all_invalid(field, &json!(given), names::qualified_name(given), errors);
    }
}

fn affinity(spec: &Value, errors: &mut Vec<FieldError>) {
    let config = spec.get("sessionAffinityConfig").filter(|c| !c.is_null());
    match text(spec, "sessionAffinity") {
        "None" if config.is_some() => {
            let detail = "must not be set when session affinity is None";
            errors.push(FieldError::forbidden("spec.sessionAffinityConfig", detail));
        }
        "ClientIP" => {
            let seconds = config.and_then(|c| c.pointer("/clientIP/timeoutSeconds")).and_then(Value::as_i64);
            if let Some(seconds) = seconds.filter(|s| !(1..=86_400).contains(s)) {
                let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
                let detail = "must be greater than 0 and less than 86400";
                errors.push(FieldError::invalid(field, &json!(seconds), detail));
            }
        }
        "None" => {}
        other => errors.push(FieldError::not_supported("spec.sessionAffinity", &json!(other), &["ClientIP", "None"])),
    }
}

fn addresses(spec: &Value, errors: &mut Vec<FieldError>) {
    let (one, all) = (text(spec, "clusterIP"), list(spec, "clusterIPs"));
    let value = spec.get("clusterIPs").unwrap_or(&Value::Null);
    let mut wrong = |detail: &str| errors.push(FieldError::invalid("spec.clusterIPs", value, detail));
    match all.first() {
        Some(_) if one.is_empty() => wrong("must be empty when `clusterIP` is not specified"),
        Some(first) if first != one => wrong("first value must match `clusterIP`"),
        _ => {}
    }
    family_names(spec, errors);
    let mut parsed: Vec<IpAddr> = Vec::new();
    let mut bad = false;
    for (at, ip) in all.iter().enumerate() {
        let ip = ip.as_str().unwrap_or_default();
        if at == 0 && ip == "None" {
            if all.len() > 1 {
                bad = true;
                errors.push(FieldError::invalid("spec.clusterIPs", value, "'None' must be the first and only value"));
            }
            continue;
        }
        match formats::legacy_ip(&format!("spec.clusterIPs[{at}]"), ip, errors) {
            Some(ip) => parsed.push(ip),
            None => bad = true,
        }
    }
    if all.len() > 2 {
        errors.push(FieldError::invalid("spec.clusterIPs", value, "may only hold up to 2 values"));
    }
    if bad {
        return;
    }
    let four = parsed.iter().filter(|ip| formats::is_ipv4(ip)).count();
    if all.len() > 1 && (four == 0 || four == parsed.len()) {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid("spec.clusterIPs", value, detail));
    }
    for (at, (ip, family)) in parsed.iter().zip(list(spec, "ipFamilies")).enumerate() {
        let wanted = if formats::is_ipv4(ip) { "IPv4" } else { "IPv6" };
        if let Some(family) = family.as_str().filter(|f| matches!(*f, "IPv4" | "IPv6") && *f != wanted) {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{at}]`");
            let given = all.get(at).unwrap_or(&Value::Null);
            errors.push(FieldError::invalid(format!("spec.clusterIPs[{at}]"), given, detail));
        }
    }
}

fn family_names(spec: &Value, errors: &mut Vec<FieldError>) {
    let families = list(spec, "ipFamilies");
    for (at, family) in families.iter().enumerate() {
        let (field, name) = (format!("spec.ipFamilies[{at}]"), family.as_str().unwrap_or_default());
        if !matches!(name, "IPv4" | "IPv6") {
            errors.push(FieldError::not_supported(&field, &json!(name), &["IPv4", "IPv6"]));
        }
        if families.iter().take(at).any(|f| f == family) {
            errors.push(FieldError::duplicate(field, family));
        }
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if let Some(policy) = spec.get("ipFamilyPolicy").and_then(Value::as_str).filter(|p| !policies.contains(p)) {
        errors.push(FieldError::not_supported("spec.ipFamilyPolicy", &json!(policy), &policies));
    }
}

fn port_numbers(spec: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let ports = list(spec, "ports");
    let number = |port: &Value, key: &str| port.get(key).and_then(Value::as_i64).unwrap_or_default();
    let same = |a: &Value, b: &Value, key: &str| {
        text(a, "protocol") == text(b, "protocol") && number(a, key) == number(b, key)
    };
    for (at, port) in ports.iter().enumerate() {
        if kind == "ClusterIP" && number(port, "nodePort") != 0 {
            let detail = "may not be used when `type` is 'ClusterIP'";
            errors.push(FieldError::forbidden(format!("spec.ports[{at}].nodePort"), detail));
        }
    }
    for (at, port) in ports.iter().enumerate().filter(|(_, p)| number(p, "nodePort") != 0) {
        if ports.iter().take(at).any(|other| same(other, port, "nodePort")) {
            errors.push(FieldError::duplicate(format!("spec.ports[{at}].nodePort"), &json!(number(port, "nodePort"))));
        }
    }
    for (at, port) in ports.iter().enumerate() {
        if ports.iter().take(at).any(|other| same(other, port, "port")) {
            // As upstream's internal type prints it.
            let key = json!({"Name": "", "Protocol": text(port, "protocol"), "AppProtocol": null,
                "Port": number(port, "port"), "TargetPort": 0, "NodePort": 0});
            errors.push(FieldError::of_struct(FieldErrorKind::Duplicate, format!("spec.ports[{at}]"), &key, ""));
        }
    }
}

fn source_ranges(object: &Object, kind: &str, errors: &mut Vec<FieldError>) {
    const DETAIL: &str = "may only be used when `type` is 'LoadBalancer'";
    let ranges = list(member(object, "spec"), "loadBalancerSourceRanges");
    if !ranges.is_empty() {
        // Upstream's path begins with a capital here.
        if kind != "LoadBalancer" {
            errors.push(FieldError::forbidden("spec.LoadBalancerSourceRanges", DETAIL));
        }
        for (at, range) in ranges.iter().enumerate() {
            let field = format!("spec.LoadBalancerSourceRanges[{at}]");
            formats::legacy_cidr(&field, range.as_str().unwrap_or_default().trim(), errors);
        }
    } else if let Some(ranges) = annotation(object, RANGES) {
        let field = format!("metadata.annotations[{RANGES}]");
        if kind != "LoadBalancer" {
            errors.push(FieldError::forbidden(&field, DETAIL));
        }
        for range in ranges.trim().split(',').filter(|_| !ranges.trim().is_empty()) {
            formats::legacy_cidr(&field, range.trim(), errors);
        }
    }
}

fn balancer(spec: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let detail = "may only be used when `type` is 'LoadBalancer'";
    if kind != "LoadBalancer" && spec.get("allocateLoadBalancerNodePorts").is_some_and(|a| !a.is_null()) {
        errors.push(FieldError::forbidden("spec.allocateLoadBalancerNodePorts", detail));
    }
    if let Some(class) = spec.get("loadBalancerClass").and_then(Value::as_str) {
        if kind == "LoadBalancer" {
            all_invalid("spec.loadBalancerClass", &json!(class), names::qualified_name(class), errors);
        } else {
            errors.push(FieldError::forbidden("spec.loadBalancerClass", detail));
        }
    }
}

fn traffic(spec: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let external = text(spec, "externalTrafficPolicy");
    if !externally_accessible(spec) {
        if !external.is_empty() {
            let detail = "may only be set for externally-accessible services";
            errors.push(FieldError::invalid("spec.externalTrafficPolicy", &json!(external), detail));
        }
    } else if !matches!(external, "Cluster" | "Local") {
        errors.push(FieldError::not_supported("spec.externalTrafficPolicy", &json!(external), &["Cluster", "Local"]));
    }
    let check = spec.get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or_default();
    if check != 0 {
        if kind == "LoadBalancer" && external == "Local" {
            all_invalid("spec.healthCheckNodePort", &json!(check), formats::port_number(check), errors);
        } else {
            let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.push(FieldError::invalid("spec.healthCheckNodePort", &json!(check), detail));
        }
    }
    if let Some(internal) = spec.get("internalTrafficPolicy").and_then(Value::as_str)
        && !matches!(internal, "Cluster" | "Local")
    {
        errors.push(FieldError::not_supported("spec.internalTrafficPolicy", &json!(internal), &["Cluster", "Local"]));
    }
    let known = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    if let Some(given) = spec.get("trafficDistribution").and_then(Value::as_str).filter(|g| !known.contains(g)) {
        errors.push(FieldError::not_supported("spec.trafficDistribution", &json!(given), &known));
    }
}

fn balancer_status(object: &Object, errors: &mut Vec<FieldError>) {
    let ingress = member(object, "status").pointer("/loadBalancer/ingress").and_then(Value::as_array);
    let ingress = ingress.map(Vec::as_slice).unwrap_or_default();
    const FIELD: &str = "status.loadBalancer.ingress";
    if text(member(object, "spec"), "type") != "LoadBalancer" && !ingress.is_empty() {
        errors.push(FieldError::forbidden(FIELD, "may only be used when `spec.type` is 'LoadBalancer'"));
        return;
    }
    for (at, one) in ingress.iter().enumerate() {
        let (ip, host, mode) = (text(one, "ip"), text(one, "hostname"), one.get("ipMode").and_then(Value::as_str));
        let field = |key: &str| format!("{FIELD}[{at}].{key}");
        if !ip.is_empty() {
            formats::legacy_ip(&field("ip"), ip, errors);
        }
        match mode {
            None if !ip.is_empty() => {
                errors.push(FieldError::required(field("ipMode"), "must be specified when `ip` is set"));
            }
            Some(_) if ip.is_empty() => {
                errors.push(FieldError::forbidden(field("ipMode"), "may not be specified when `ip` is not set"));
            }
            Some(mode) if !matches!(mode, "VIP" | "Proxy") => {
                errors.push(FieldError::not_supported(field("ipMode"), &json!(mode), &["Proxy", "VIP"]));
            }
            _ => {}
        }
        if !host.is_empty() {
            all_invalid(&field("hostname"), &json!(host), names::dns_1123_subdomain(host), errors);
            if formats::sloppy_ip(host).is_some() {
                let detail = "must be a DNS name, not an IP address";
                errors.push(FieldError::invalid(field("hostname"), &json!(host), detail));
            }
        }
    }
}

/// Warnings for the client of a Service.
fn warnings(object: &Object) -> Vec<String> {
    let spec = member(object, "spec");
    let (kind, mut out) = (text(spec, "type"), Vec::new());
    if annotation(object, HINTS).is_some() {
        out.push(format!("annotation {HINTS} is deprecated, please use {MODE} instead"));
    }
    let ips = |key: &str| -> Vec<String> {
        let one = |(at, ip): (usize, &Value)| {
            formats::ip_warning(&format!("spec.{key}[{at}]"), ip.as_str().unwrap_or_default())
        };
        list(spec, key).iter().enumerate().filter_map(one).collect()
    };
    if kind != "ExternalName" && text(spec, "clusterIP") != "None" {
        out.extend(ips("clusterIPs"));
    }
    if kind == "ClusterIP" && text(spec, "clusterIP") == "None" {
        if !text(spec, "loadBalancerIP").is_empty() {
            out.push("spec.loadBalancerIP is ignored for headless services".to_owned());
        }
        if !list(spec, "externalIPs").is_empty() {
            out.push("spec.externalIPs is ignored for headless services".to_owned());
        }
        if text(spec, "sessionAffinity") != "None" {
            out.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    }
    out.extend(ips("externalIPs"));
    out.extend(formats::ip_warning("spec.loadBalancerIP", text(spec, "loadBalancerIP")));
    if kind == "ExternalName" && !list(spec, "externalIPs").is_empty() {
        out.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if kind != "ExternalName" && !text(spec, "externalName").is_empty() {
        out.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    out
}

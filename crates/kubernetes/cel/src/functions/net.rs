//! Addresses and networks (`library/ip.go`, `library/cidr.go`).

use std::net::IpAddr;
use std::sync::Arc;

use crate::ext::Ext;
use crate::fault::Fault;
use crate::value::{Outcome, Value};

fn parse_ip(text: &str) -> Result<IpAddr, Fault> {
    if let Some((address, zone)) = text.split_once('%')
        && !zone.is_empty()
        && address.parse::<std::net::Ipv6Addr>().is_ok()
    {
        return Err(Fault::new(format!("IP address {text:?} with zone value is not allowed")));
    }
    let ip: IpAddr = text.parse().map_err(|_| {
        let why = if text.contains([':', '.']) { "unexpected character" } else { "unable to parse IP" };
        Fault::new(format!("IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): {why}"))
    })?;
    match ip {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Err(Fault::new(format!("IPv4-mapped IPv6 address {text:?} is not allowed")))
        }
        ip => Ok(ip),
    }
}

fn parse_cidr(text: &str) -> Result<(IpAddr, u8), Fault> {
    let failed = |why: String| {
        Fault::new(format!(
            "network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix({text:?}): {why}"
        ))
    };
    let (address, bits) = text.rsplit_once('/').ok_or_else(|| failed("no '/'".into()))?;
    let ip: IpAddr = address.parse().map_err(|_| failed(format!("ParseAddr({address:?}): unable to parse IP")))?;
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let plain =
        !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit()) && (bits.len() == 1 || !bits.starts_with('0'));
    let bits: u8 =
        plain.then(|| bits.parse().ok()).flatten().ok_or_else(|| failed(format!("bad bits after slash: {bits:?}")))?;
    if bits > most {
        return Err(failed("prefix length out of range".into()));
    }
    if let IpAddr::V6(v6) = ip
        && v6.to_ipv4_mapped().is_some()
    {
        return Err(Fault::new(format!(
            "network address parse error during conversion from string: IPv4-mapped IPv6 address {text:?} is not allowed"
        )));
    }
    Ok((ip, bits))
}

fn masked(ip: IpAddr, bits: u8) -> IpAddr {
    match ip {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

fn holds(net: (IpAddr, u8), ip: IpAddr) -> bool {
    net.0.is_ipv4() == ip.is_ipv4() && masked(net.0, net.1) == masked(ip, net.1)
}

fn ext(value: Ext) -> Value {
    Value::Ext(Arc::new(value))
}

pub(super) fn call(name: &str, args: &[Value]) -> Option<Outcome> {
    Some(match (name, args) {
        ("ip", [Value::String(s)]) => parse_ip(s).map(|ip| ext(Ext::Ip(ip))),
        ("isIP", [Value::String(s)]) => Ok(Value::Bool(parse_ip(s).is_ok())),
        ("ip.isCanonical", [Value::String(s)]) => parse_ip(s).map(|ip| Value::Bool(ip.to_string() == **s)),
        ("cidr", [Value::String(s)]) => parse_cidr(s).map(|(ip, bits)| ext(Ext::Cidr(ip, bits))),
        ("isCIDR", [Value::String(s)]) => Ok(Value::Bool(parse_cidr(s).is_ok())),
        (name, [Value::Ext(receiver), rest @ ..]) => match (&**receiver, rest) {
            (Ext::Ip(ip), []) => return of_ip(name, *ip).map(Ok),
            (Ext::Cidr(ip, bits), rest) => return of_cidr(name, (*ip, *bits), rest),
            _ => return None,
        },
        _ => return None,
    })
}

fn of_ip(name: &str, ip: IpAddr) -> Option<Value> {
    let link_local_multicast = match ip {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    };
    let link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    };
    Some(match name {
        "family" => Value::Int(if ip.is_ipv4() { 4 } else { 6 }),
        "isUnspecified" => Value::Bool(ip.is_unspecified()),
        "isLoopback" => Value::Bool(ip.is_loopback()),
        "isLinkLocalMulticast" => Value::Bool(link_local_multicast),
        "isLinkLocalUnicast" => Value::Bool(link_local),
        "isGlobalUnicast" => {
            let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
            Value::Bool(!(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || link_local || broadcast))
        }
        _ => return None,
    })
}

fn of_cidr(name: &str, net: (IpAddr, u8), rest: &[Value]) -> Option<Outcome> {
    Some(match (name, rest) {
        ("ip", []) => Ok(ext(Ext::Ip(net.0))),
        ("prefixLength", []) => Ok(Value::Int(i64::from(net.1))),
        ("masked", []) => Ok(ext(Ext::Cidr(masked(net.0, net.1), net.1))),
        ("containsIP", [Value::String(s)]) => parse_ip(s).map(|ip| Value::Bool(holds(net, ip))),
        ("containsIP", [Value::Ext(e)]) => match **e {
            Ext::Ip(ip) => Ok(Value::Bool(holds(net, ip))),
            _ => return None,
        },
        ("containsCIDR", [Value::String(s)]) => {
            parse_cidr(s).map(|(ip, bits)| Value::Bool(net.1 <= bits && holds(net, ip)))
        }
        ("containsCIDR", [Value::Ext(e)]) => match **e {
            Ext::Cidr(ip, bits) => Ok(Value::Bool(net.1 <= bits && holds(net, ip))),
            _ => return None,
        },
        _ => return None,
    })
}

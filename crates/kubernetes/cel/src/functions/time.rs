//! Timestamps and durations.

use jiff::civil::Weekday;
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, Zoned};

use crate::fault::Fault;
use crate::value::{Outcome, Value};

const SECOND: i64 = 1_000_000_000;

pub(super) fn duration(nanos: Option<i64>) -> Outcome {
    nanos.map(Value::Duration).ok_or_else(|| Fault::new("duration overflow"))
}

/// A timestamp from year 1 to year 9999.
pub(super) fn timestamp(nanos: i128) -> Outcome {
    let seconds = nanos.div_euclid(i128::from(SECOND));
    if (-62_135_596_800..=253_402_300_799).contains(&seconds) {
        Ok(Value::Timestamp(nanos))
    } else {
        Err(Fault::new("timestamp overflow"))
    }
}

/// Reads a duration as Go does: `1h30m`, `-1.5s`.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && part.is_empty()) || part.contains('.') || whole.len() > 19 {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let part = part.get(..part.len().min(18))?;
        let scale = 10i128.pow(part.len() as u32);
        let part: i128 = if part.is_empty() { 0 } else { part.parse().ok()? };
        total = total.checked_add(whole.checked_mul(unit)?)?.checked_add(part * unit / scale)?;
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

pub(crate) fn parse_timestamp(text: &str) -> Option<i128> {
    let upper = text.contains('T') && !text.contains('[');
    upper.then(|| text.parse::<Timestamp>().ok()).flatten().map(Timestamp::as_nanosecond)
}

pub(super) fn show_duration(nanos: i64) -> String {
    format!("{}s", nanos as f64 / 1e9)
}

pub(super) fn show_timestamp(nanos: i128) -> String {
    Timestamp::from_nanosecond(nanos).map(|t| t.to_string()).unwrap_or_default()
}

fn zone(name: &str) -> Result<TimeZone, Fault> {
    if matches!(name, "" | "UTC") {
        return Ok(TimeZone::UTC);
    }
    if let Some((hours, minutes)) = name.split_once(':') {
        let parsed = hours.parse::<i32>().ok().zip(minutes.parse::<i32>().ok());
        let sign = if hours.starts_with('-') { -1 } else { 1 };
        let offset = parsed.and_then(|(h, m)| Offset::from_seconds(h * 3600 + sign * m * 60).ok());
        return offset.map(TimeZone::fixed).ok_or_else(|| Fault::new(format!("invalid timezone {name}")));
    }
    TimeZone::get(name).map_err(|_| Fault::new(format!("unknown time zone {name}")))
}

pub(super) fn call(name: &str, args: &[Value]) -> Option<Outcome> {
    match args {
        [Value::Duration(d)] => {
            let found = match name {
                "getHours" => d / (3600 * SECOND),
                "getMinutes" => d / (60 * SECOND),
                "getSeconds" => d / SECOND,
                "getMilliseconds" => d / 1_000_000,
                _ => return None,
            };
            Some(Ok(Value::Int(found)))
        }
        [Value::Timestamp(t)] => part(name, *t, "UTC"),
        [Value::Timestamp(t), Value::String(zone)] => part(name, *t, zone),
        _ => None,
    }
}

fn part(name: &str, nanos: i128, zone_name: &str) -> Option<Outcome> {
    let read: fn(&Zoned) -> i64 = match name {
        "getFullYear" => |z| i64::from(z.year()),
        "getMonth" => |z| i64::from(z.month()) - 1,
        "getDayOfYear" => |z| i64::from(z.day_of_year()) - 1,
        "getDayOfMonth" => |z| i64::from(z.day()) - 1,
        "getDate" => |z| i64::from(z.day()),
        "getDayOfWeek" => |z| i64::from(z.weekday().since(Weekday::Sunday)),
        "getHours" => |z| i64::from(z.hour()),
        "getMinutes" => |z| i64::from(z.minute()),
        "getSeconds" => |z| i64::from(z.second()),
        "getMilliseconds" => |z| i64::from(z.millisecond()),
        _ => return None,
    };
    let zone = match zone(zone_name) {
        Ok(zone) => zone,
        Err(fault) => return Some(Err(fault)),
    };
    let found = Timestamp::from_nanosecond(nanos).map(|t| read(&t.to_zoned(zone)));
    Some(found.map(Value::Int).map_err(|_| Fault::new("timestamp overflow")))
}

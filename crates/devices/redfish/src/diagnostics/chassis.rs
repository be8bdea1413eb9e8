//! Chassis: supplies, fans, temperatures, intrusion, limit of power. What newer services have in subsystems (PowerSubsystem, ThermalSubsystem, Sensors) older ones have in
//! Power and Thermal; the older form is read where there is no newer one.

use diagnosis::{Part, PartKind, PowerCap, PowerFacts};
use serde_json::Value;
use terms::HealthLevel;

use super::facts::{depth, health, level, number, rollup, worse};
use super::reader::{Miss, Reader};
use crate::json::{flag, link_at, links, word};

/// Most chassis of a system that are looked at.
const MAX_CHASSIS: usize = 2;
/// Most members of one kind that are read one by one.
const MOST: usize = 6;

impl Reader<'_> {
    /// The chassis that the system is in.
    pub async fn read_chassis(&mut self, system: &Value, power: &mut PowerFacts, parts: &mut Vec<Part>) {
        let all = links(system.get("Links").and_then(|links| links.get("Chassis")));
        if all.len() > MAX_CHASSIS {
            self.skip("Chassis", format!("{} more are not read", all.len() - MAX_CHASSIS));
        }
        for path in all.iter().take(MAX_CHASSIS) {
            let chassis = match self.get(path).await {
                Ok(chassis) => chassis,
                Err(miss) => {
                    self.missed("Chassis", &miss);
                    continue;
                }
            };
            let intrusion = chassis.get("PhysicalSecurity").and_then(|security| self.text(security, "IntrusionSensor"));
            power.intrusion = power.intrusion.take().or(intrusion);
            let mut part = self.part(PartKind::Chassis, path, &chassis);
            part.health = rollup(&chassis);
            parts.push(part);
            self.read_power(&chassis, power, parts).await;
            self.read_thermal(&chassis, parts).await;
            self.adapters.extend(link_at(&chassis, "NetworkAdapters"));
        }
    }

    async fn optional(&mut self, what: &str, path: Option<String>) -> Option<Value> {
        match self.get(&path?).await {
            Ok(value) => Some(value),
            Err(miss) => {
                self.missed(what, &miss);
                None
            }
        }
    }

    /// Members of a collection; a note where they cannot be read.
    pub async fn those(&mut self, what: &str, path: Option<String>, most: usize) -> Vec<(String, Value)> {
        self.whole = false;
        let Some(path) = path else { return Vec::new() };
        match self.members(what, &path, most).await {
            Ok(members) => members,
            Err(Miss::Absent(_)) => Vec::new(),
            Err(miss) => {
                self.missed(what, &miss);
                Vec::new()
            }
        }
    }

    async fn read_power(&mut self, chassis: &Value, power: &mut PowerFacts, parts: &mut Vec<Part>) {
        let before = parts.len();
        let subsystem = self.optional("PowerSubsystem", link_at(chassis, "PowerSubsystem")).await;
        if let Some(subsystem) = &subsystem {
            let list = link_at(subsystem, "PowerSupplies");
            for (path, value) in self.those("PowerSupplies", list, MOST).await {
                parts.push(self.supply(&path, &value));
            }
            note_redundancy(power, subsystem.get("PowerSupplyRedundancy"));
        }
        let metrics = link_at(chassis, "EnvironmentMetrics");
        let old = link_at(chassis, "Power");
        if parts.len() == before || metrics.is_none() {
            let Some(old) = self.optional("Power", old).await else { return };
            if parts.len() == before {
                let supplies = old.get("PowerSupplies").and_then(Value::as_array).cloned().unwrap_or_default();
                for value in supplies.iter().take(MOST * 2) {
                    let mut part = self.supply("", value);
                    part.slot = self.text(value, "Name").or_else(|| self.text(value, "MemberId")).unwrap_or_default();
                    parts.push(part);
                }
                note_redundancy(power, old.get("Redundancy"));
            }
            let control = old.get("PowerControl").and_then(|list| list.get(0));
            power.cap = power.cap.take().or_else(|| control.and_then(|control| self.cap(control)));
        } else if let Some(metrics) = self.optional("EnvironmentMetrics", metrics).await {
            let limit = metrics.get("PowerLimitWatts").and_then(|limit| number(limit, "SetPoint"));
            let drawn = metrics.get("PowerWatts").and_then(|drawn| number(drawn, "Reading"));
            power.cap = power.cap.take().or_else(|| {
                Some(PowerCap { limit_watts: watts(Some(limit?)), drawn_watts: watts(drawn), exception: None })
            });
        }
    }

    fn cap(&self, control: &Value) -> Option<PowerCap> {
        let limit = control.get("PowerLimit")?;
        Some(PowerCap {
            limit_watts: Some(watts(number(limit, "LimitInWatts"))?),
            drawn_watts: watts(number(control, "PowerConsumedWatts")),
            exception: self.text(limit, "LimitException"),
        })
    }

    fn supply(&self, path: &str, value: &Value) -> Part {
        let line = word(value, "LineInputStatus").map(|word| matches!(word, "Normal" | "InRange"));
        // The older form has no status of the input: no voltage where one is measured is none.
        let volts = value.get("LineInputVoltage").and_then(Value::as_f64).map(|volts| volts > 0.0);
        Part { input_good: line.or(volts), ..self.part(PartKind::PowerSupply, path, value) }
    }

    async fn read_thermal(&mut self, chassis: &Value, parts: &mut Vec<Part>) {
        let subsystem = self.optional("ThermalSubsystem", link_at(chassis, "ThermalSubsystem")).await;
        let mut state = None;
        let mut has_fans = false;
        if let Some(subsystem) = &subsystem {
            state = rollup(subsystem);
            for (path, value) in self.those("Fans", link_at(subsystem, "Fans"), depth(state, MOST)).await {
                has_fans = true;
                let reading = value.get("SpeedPercent").and_then(|speed| {
                    speed.get("SpeedRPM").and_then(Value::as_f64).or_else(|| speed.get("Reading")?.as_f64())
                });
                parts.push(Part { reading, ..self.part(PartKind::Fan, &path, &value) });
            }
        }
        let sensors = self.those("Sensors", link_at(chassis, "Sensors"), depth(state, MOST)).await;
        let mut has_temperatures = false;
        for (path, value) in &sensors {
            let kind = match (word(value, "ReadingType"), word(value, "ReadingUnits")) {
                (Some("Temperature"), _) | (None, Some("Cel")) => PartKind::Temperature,
                // Fans are members of the subsystem where there is one.
                (Some("Rotational"), _) | (None, Some("RPM")) if !has_fans => PartKind::Fan,
                _ => continue,
            };
            has_temperatures |= kind == PartKind::Temperature;
            parts.push(self.sensor(kind, path, value));
        }
        if has_fans && has_temperatures {
            return;
        }
        let Some(old) = self.optional("Thermal", link_at(chassis, "Thermal")).await else { return };
        for (list, kind, wanted) in
            [("Fans", PartKind::Fan, !has_fans), ("Temperatures", PartKind::Temperature, !has_temperatures)]
        {
            let values = old.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            for value in values.iter().take(64).filter(|_| wanted) {
                parts.push(self.old_sensor(kind, value));
            }
        }
    }

    fn sensor(&self, kind: PartKind, path: &str, value: &Value) -> Part {
        let critical = value.get("Thresholds").and_then(|all| all.get("UpperCritical")?.get("Reading")?.as_f64());
        let mut part = self.part(kind, path, value);
        part.slot = self.text(value, "Name").unwrap_or(part.slot);
        Part { reading: value.get("Reading").and_then(Value::as_f64), critical_at: critical, ..part }
    }

    fn old_sensor(&self, kind: PartKind, value: &Value) -> Part {
        let reading = ["ReadingCelsius", "Reading"].iter().find_map(|field| value.get(field)?.as_f64());
        let critical = value.get("UpperThresholdCritical").and_then(Value::as_f64);
        let mut part = self.part(kind, "", value);
        part.slot = self.text(value, "Name").or_else(|| self.text(value, "FanName")).unwrap_or(part.slot);
        Part { reading, critical_at: critical.filter(|_| kind == PartKind::Temperature), ..part }
    }
}

fn watts(number: Option<u64>) -> Option<u32> {
    u32::try_from(number?).ok()
}

/// The worst of the groups, in the BMC's word.
fn note_redundancy(power: &mut PowerFacts, groups: Option<&Value>) {
    let groups = groups.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let on = groups.iter().filter(|group| {
        let state = group.get("Status").and_then(|status| word(status, "State"));
        state != Some("Disabled") && flag(group, "RedundancyEnabled") != Some(false)
    });
    let found: Option<HealthLevel> = on.map(health).fold(None, worse);
    let known = power.redundancy.as_deref().and_then(level);
    power.redundancy = worse(known, found).map(|level| format!("{level:?}"));
}

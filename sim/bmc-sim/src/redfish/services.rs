//! Resources that are made from the BMC's state: sessions, tasks, schemas, and the service documents of OData.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{
    collection::collection,
    recorded::{SCHEMA_FILE_TYPE, SCHEMAS, SESSION_SERVICE_TYPE, TASK_SERVICE_TYPE},
};
use crate::{
    bmc::{Bmc, lock},
    settings::Settings,
};

/// The resource of a service at `path`, if there is one.
#[must_use]
pub fn resource(bmc: &Bmc, path: &str, settings: &Settings) -> Option<Value> {
    let rest = path.strip_prefix("/redfish/v1/")?;
    Some(match rest {
        "odata" => json!({
            "@odata.context": "/redfish/v1/$metadata",
            "value": [
                { "name": "Service", "kind": "Singleton", "url": "/redfish/v1/" },
                { "name": "Systems", "kind": "Singleton", "url": "/redfish/v1/Systems" },
                { "name": "Managers", "kind": "Singleton", "url": "/redfish/v1/Managers" },
                { "name": "Chassis", "kind": "Singleton", "url": "/redfish/v1/Chassis" },
            ],
        }),
        "SessionService" if settings.sessions => json!({
            "@odata.type": SESSION_SERVICE_TYPE,
            "@odata.id": path,
            "Id": "SessionService",
            "Name": "Session Service",
            "Status": { "State": "Enabled", "Health": "OK" },
            "ServiceEnabled": true,
            "SessionTimeout": settings.session_idle_seconds,
            "Sessions": { "@odata.id": "/redfish/v1/SessionService/Sessions" },
        }),
        "SessionService/Sessions" if settings.sessions => {
            let mut sessions = lock(&bmc.sessions);
            let open = sessions.list(tokio::time::Instant::now(), settings.session_idle());
            let members = open.iter().map(|session| format!("{path}/{}", session.id));
            collection(path, "SessionCollection", "Session Collection", members)
        }
        "TaskService" => json!({
            "@odata.type": TASK_SERVICE_TYPE,
            "@odata.id": path,
            "Id": "TaskService",
            "Name": "Task Service",
            "DateTime": (bmc.shared.now)().to_string(),
            "CompletedTaskOverWritePolicy": "Oldest",
            "LifeCycleEventOnTaskStateChange": false,
            "Status": { "State": "Enabled", "Health": "OK" },
            "ServiceEnabled": true,
            "Tasks": { "@odata.id": "/redfish/v1/TaskService/Tasks" },
        }),
        "TaskService/Tasks" => super::ill::tasks::list(bmc, lock(&bmc.tasks).collection()),
        _ if rest.starts_with("EventService/Subscriptions") && settings.events.subscriptions() => {
            return lock(&bmc.subscriptions).resource(path);
        }
        "JsonSchemas" => {
            let members = SCHEMAS.keys().map(|schema| format!("{path}/{schema}"));
            collection(path, "JsonSchemaFileCollection", "JSON Schema File Collection", members)
        }
        _ => return one(bmc, rest, path, settings),
    })
}

/// One session or schema.
fn one(bmc: &Bmc, rest: &str, path: &str, settings: &Settings) -> Option<Value> {
    if let Some(schema) = rest.strip_prefix("JsonSchemas/") {
        let kind = SCHEMAS.get(schema)?;
        return Some(json!({
            "@odata.type": SCHEMA_FILE_TYPE,
            "@odata.id": path,
            "Id": schema,
            "Name": format!("{schema} Schema File"),
            "Schema": kind,
            "Languages": ["en"],
            "Location": [
                { "Language": "en", "PublicationUri": format!("http://redfish.dmtf.org/schemas/v1/{schema}.json") },
            ],
        }));
    }
    let id = rest.strip_prefix("SessionService/Sessions/").filter(|_| settings.sessions)?;
    let mut sessions = lock(&bmc.sessions);
    let open = sessions.list(tokio::time::Instant::now(), settings.session_idle());
    Some(open.iter().find(|session| session.id.to_string() == id)?.resource())
}

/// The metadata document (DSP0266, "OData metadata"): where the schemas of all resources are.
#[must_use]
pub fn metadata() -> String {
    const OASIS: &str = "http://docs.oasis-open.org/odata/ns";
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<edmx:Edmx xmlns:edmx=\"{OASIS}/edmx\" Version=\"4.0\">\n"
    );
    for schema in SCHEMAS.keys().map(String::as_str).chain(["RedfishExtensions.v1_0_0"]) {
        let name = schema.split('.').next().unwrap_or(schema);
        // Writing to a text cannot fail.
        let _ = writeln!(text, "  <edmx:Reference Uri=\"http://redfish.dmtf.org/schemas/v1/{name}_v1.xml\">");
        match name {
            "RedfishExtensions" => {
                let _ = writeln!(text, "    <edmx:Include Namespace=\"{schema}\" Alias=\"Redfish\"/>");
            }
            name => {
                let _ = writeln!(text, "    <edmx:Include Namespace=\"{name}\"/>");
            }
        }
        if schema.contains('.') && name != "RedfishExtensions" {
            let _ = writeln!(text, "    <edmx:Include Namespace=\"{schema}\"/>");
        }
        text.push_str("  </edmx:Reference>\n");
    }
    let root = SCHEMAS.keys().find(|schema| schema.starts_with("ServiceRoot.")).map_or("ServiceRoot", String::as_str);
    let _ = write!(
        text,
        "  <edmx:DataServices>\n    <Schema xmlns=\"{OASIS}/edm\" Namespace=\"Service\">\n      \
         <EntityContainer Name=\"Service\" Extends=\"{root}.ServiceContainer\"/>\n    </Schema>\n  \
         </edmx:DataServices>\n</edmx:Edmx>\n"
    );
    text
}

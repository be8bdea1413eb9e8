//! The stages that each verb runs, traced, are those that are declared for its form.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::deletion::Options;
use super::stages::{Form, Stage};
use super::{Backend, create, delete, patch, scale, update};
use crate::change::Change;
use crate::controllers;
use crate::media::{Accept, Encoding};
use crate::reply::Response;
use crate::request::Request;
use crate::resource::Resource;
use crate::route::{Query, ResourceTarget, Verb};
use crate::status::ApiResult;
use crate::user::User;

tokio::task_local! {
    /// The stages that a task has run.
    static RUN: RefCell<Vec<Stage>>;
}

/// Notes a stage that is about to run.
pub fn note(stage: Stage) {
    // Only who traces is interested.
    let _ = RUN.try_with(|run| run.borrow_mut().push(stage));
}

/// What a future gives, and the stages that it ran.
async fn traced<T>(what: impl Future<Output = T>) -> (T, Vec<Stage>) {
    RUN.scope(RefCell::default(), async {
        let done = what.await;
        (done, RUN.with(RefCell::take))
    })
    .await
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// A server with a definition that has both subresources, and one object of it.
struct Site {
    backend: Arc<Backend>,
    _dir: tempfile::TempDir,
}

impl Site {
    async fn new() -> Self {
        let (backend, dir) = Backend::for_tests();
        let backend = Arc::new(backend);
        controllers::ensure_namespaces(&backend).await.unwrap();
        let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let sized = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"replicas": {"type": "integer"}}});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.g.example.com"}, "spec": {"group": "g.example.com", "scope": "Namespaced",
                "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": sized, "status": free}}},
                    "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas"}}}]}});
        backend.install(definition).await.unwrap();
        let site = Self { backend, _dir: dir };
        site.ask(Verb::Create, ("", ""), JSON, "", &thing("one")).await.0.unwrap();
        site
    }

    fn resource(&self) -> Arc<Resource> {
        Arc::clone(self.backend.registry.catalog().find("g.example.com", "v1", "things").unwrap())
    }

    async fn version(&self, name: &str) -> String {
        self.backend.stored(&self.resource().key("default", name)).await.unwrap().unwrap().rev.to_string()
    }

    /// Sends a request; gives the answer and the stages that ran.
    async fn ask(
        &self,
        verb: Verb,
        (name, sub): (&str, &str),
        content_type: &str,
        query: &str,
        body: &Value,
    ) -> (ApiResult<Response>, Vec<Stage>) {
        let (ns, name, sub) = ("default".to_owned(), name.to_owned(), sub.to_owned());
        let target = ResourceTarget { resource: self.resource(), verb, ns, name, sub };
        let mut request = Request {
            target,
            query: Query::parse(query),
            accept: Accept::plain(Encoding::Json),
            content_type: content_type.to_owned(),
            body: if body.is_null() { Bytes::new() } else { body.to_string().into() },
            warnings: Vec::new(),
            user: User::administrator(),
            agent: String::new(),
            audit: Default::default(),
        };
        let (backend, request) = (&*self.backend, &mut request);
        match verb {
            Verb::Create => traced(create::create(backend, request)).await,
            Verb::Update if request.target.sub == "scale" => traced(scale::update(backend, request)).await,
            Verb::Update => traced(update::update(backend, request)).await,
            Verb::Patch if request.target.sub == "scale" => traced(scale::patch(backend, request)).await,
            Verb::Patch => traced(patch::patch(backend, request)).await,
            Verb::Delete => traced(delete::delete(backend, request)).await,
            Verb::DeleteCollection => traced(delete::delete_collection(backend, request)).await,
            other => panic!("{other:?} writes nothing"),
        }
    }

    /// A request that is done, by all stages of a form.
    async fn runs(&self, form: Form, verb: Verb, at: (&str, &str), content_type: &str, body: &Value) {
        let query = if content_type == super::apply::MEDIA { "fieldManager=m&force=true" } else { "" };
        let (answer, stages) = self.ask(verb, at, content_type, query, body).await;
        if let Err(error) = answer {
            panic!("{form:?} was refused: {error:?}");
        }
        assert_eq!(stages, form.stages().collect::<Vec<_>>(), "{form:?}");
    }
}

fn thing(name: &str) -> Value {
    json!({"apiVersion": "g.example.com/v1", "kind": "Thing", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 1}})
}

fn size(replicas: i64) -> Value {
    json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "one", "namespace": "default"},
        "spec": {"replicas": replicas}})
}

#[tokio::test]
async fn each_verb_runs_the_stages_that_are_declared_for_its_form() {
    let site = Site::new().await;
    let apply = super::apply::MEDIA;
    site.runs(Form::Create, Verb::Create, ("", ""), JSON, &thing("two")).await;
    site.runs(Form::CreateApplied, Verb::Patch, ("three", ""), apply, &thing("three")).await;
    let one = async |key: &str, value: Value| {
        let mut one = thing("one");
        one["metadata"]["resourceVersion"] = json!(site.version("one").await);
        one[key] = value;
        one
    };
    site.runs(Form::Update, Verb::Update, ("one", ""), JSON, &one("spec", json!({"replicas": 1, "a": 1})).await).await;
    let status = one("status", json!({"replicas": 1})).await;
    site.runs(Form::UpdatePart, Verb::Update, ("one", "status"), JSON, &status).await;
    site.runs(Form::Patch, Verb::Patch, ("one", ""), MERGE, &json!({"spec": {"a": 2}})).await;
    site.runs(Form::PatchPart, Verb::Patch, ("one", "status"), MERGE, &json!({"status": {"a": 2}})).await;
    let mut config = thing("one");
    config["spec"]["b"] = json!(1);
    site.runs(Form::Apply, Verb::Patch, ("one", ""), apply, &config).await;
    config["status"] = json!({"b": 1});
    site.runs(Form::ApplyPart, Verb::Patch, ("one", "status"), apply, &config).await;
    site.runs(Form::Scale, Verb::Update, ("one", "scale"), JSON, &size(2)).await;
    site.runs(Form::Scale, Verb::Patch, ("one", "scale"), MERGE, &json!({"spec": {"replicas": 3}})).await;
    site.runs(Form::ScaleApplied, Verb::Patch, ("one", "scale"), apply, &size(3)).await;
    site.runs(Form::Delete, Verb::Delete, ("three", ""), JSON, &Value::Null).await;
    // Two objects are left, and each goes by itself.
    let (answer, stages) = site.ask(Verb::DeleteCollection, ("", ""), JSON, "", &Value::Null).await;
    assert!(answer.is_ok());
    assert_eq!(stages, Form::Delete.stages().chain(Form::Delete.stages()).collect::<Vec<_>>());
    site.ask(Verb::Create, ("", ""), JSON, "", &thing("four")).await.0.unwrap();
    let change = Change { admitted: true, ..Change::by_controller(Verb::Delete, "crd-finalizer") };
    let (resource, options) = (site.resource(), Options::default());
    let (gone, stages) = traced(site.backend.remove(&change, &resource, "default", "four", &options)).await;
    assert!(gone.is_ok());
    assert_eq!(stages, Form::Empty.stages().collect::<Vec<_>>());
}

#[tokio::test]
async fn a_dry_run_and_a_refusal_end_where_they_are_declared_to() {
    let site = Site::new().await;
    let until = |form: Form, last: Stage| {
        let mut stages: Vec<Stage> = form.stages().take_while(|stage| *stage != last).collect();
        stages.push(last);
        stages
    };
    for (form, verb, name, content_type, body) in [
        (Form::Create, Verb::Create, "", JSON, thing("new")),
        (Form::Patch, Verb::Patch, "one", MERGE, json!({"spec": {"a": 1}})),
        (Form::Delete, Verb::Delete, "one", JSON, Value::Null),
    ] {
        let (answer, stages) = site.ask(verb, (name, ""), content_type, "dryRun=All", &body).await;
        assert!(answer.is_ok(), "{form:?}");
        assert_eq!(stages, until(form, Stage::DryRun));
    }
    let mut wrong = thing("new");
    wrong["metadata"]["labels"] = json!({"a": "no label at all"});
    let (answer, stages) = site.ask(Verb::Create, ("", ""), JSON, "", &wrong).await;
    assert_eq!((answer.unwrap_err().code, stages), (422, until(Form::Create, Stage::Validate)));
    let (answer, stages) = site.ask(Verb::Create, ("", ""), JSON, "", &thing("one")).await;
    assert_eq!((answer.unwrap_err().code, stages), (409, until(Form::Create, Stage::Store)));
    let stale = json!({"metadata": {"resourceVersion": "1"}, "spec": {"a": 3}});
    let (answer, stages) = site.ask(Verb::Patch, ("one", ""), MERGE, "", &stale).await;
    assert_eq!((answer.unwrap_err().code, stages), (409, until(Form::Patch, Stage::Preconditions)));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_overtaken_tries_again_from_the_stage_that_is_declared() {
    let site = Site::new().await;
    let (backend, resource) = (Arc::clone(&site.backend), site.resource());
    let change = Change::by_controller(Verb::Update, "test");
    let mut overtaken = false;
    let make = |before: &crate::object::Object| {
        let mut next = before.clone();
        crate::object::metadata_mut(&mut next).shift_remove("resourceVersion");
        next.insert("spec".into(), json!({"mine": true}));
        if !std::mem::replace(&mut overtaken, true) {
            let other = |before: &crate::object::Object| {
                let mut next = before.clone();
                next.insert("spec".into(), json!({"others": true}));
                Ok(next)
            };
            let write = site.backend.change(&change, &resource, "default", "one", other);
            let quiet = RUN.scope(RefCell::default(), write);
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(quiet)).unwrap();
        }
        Ok(next)
    };
    let (done, stages) = traced(backend.change(&change, &resource, "default", "one", make)).await;
    assert!(done.is_ok());
    let whole = || Form::Update.stages();
    let lost = whole().take_while(|stage| *stage != Stage::Audit);
    assert_eq!(stages, lost.chain(whole()).collect::<Vec<_>>());
}

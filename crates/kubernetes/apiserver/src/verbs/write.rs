//! Writes by verbs and most controllers: runs the stages of [`super::stages`] on an object.

use std::pin::Pin;

use serde_json::json;
use tokio::sync::OwnedMutexGuard;

use super::deletion::{self, Deleted, Options};
use super::stages::{Form, Stage};
use super::{ATTEMPTS, Backend, policy_rights, prepare, validate, write_failed};
use crate::admission::Subject;
use crate::allocation::Claim;
use crate::auth::{escalation, signers};
use crate::change::Change;
use crate::fields;
use crate::meta;
use crate::object::{self, Object, metadata_mut};
use crate::resource::Resource;
use crate::route::Verb;
use crate::status::{ApiError, ApiResult, FieldError};
use crate::store::{Expect, Guard, Key, Op, Stored, WriteError};

/// Computes the wanted object from the present one.
type Make<'a> = &'a mut (dyn FnMut(&Object) -> ApiResult<Object> + Send);

/// What a write does with the object.
enum Action<'a> {
    /// Creates it. Starts empty; then holds the object before each attempt adds its name and the rest.
    New(Object),
    /// Changes it.
    Changed(Make<'a>),
    /// Deletes it.
    Gone(&'a Options),
}

/// The present state of an object.
struct Present {
    /// As stored.
    stored: Stored,
    /// In the version of the request.
    object: Object,
}

/// An object on its way into the store.
struct Write<'a> {
    backend: &'a Backend,
    change: &'a Change,
    resource: &'a Resource,
    ns: &'a str,
    action: Action<'a>,
    /// The name in the request; empty if it is to be generated.
    name: String,
    old: Option<Present>,
    /// The object to store.
    object: Object,
    /// Keeps the namespace unchanged until the commit.
    guard: Option<Guard>,
    /// Addresses and ports reserved until the object is stored.
    claim: Option<Claim<'a>>,
    /// The lock of a namespace with quotas.
    turn: Option<OwnedMutexGuard<()>>,
    /// Whether the object is removed at once.
    gone: bool,
    /// The stored result.
    written: Option<Stored>,
}

/// How to continue after a stage.
enum Next {
    /// Run the next stage.
    Stage,
    /// Start another attempt.
    Attempt,
    /// Stop: the write is done, with this state of the object.
    Done(Stored),
}

impl<'a> Write<'a> {
    fn new(
        backend: &'a Backend,
        change: &'a Change,
        place: (&'a Resource, &'a str),
        name: &str,
        action: Action<'a>,
    ) -> Self {
        let (resource, ns) = place;
        Self {
            backend,
            change,
            resource,
            ns,
            action,
            name: name.to_owned(),
            old: None,
            object: Object::new(),
            guard: None,
            claim: None,
            turn: None,
            gone: false,
            written: None,
        }
    }

    /// Runs the stages until the object is stored. Returns its state, and whether it was removed.
    async fn run(mut self, form: Form) -> ApiResult<(Stored, bool)> {
        let stages: Vec<Stage> = form.stages().collect();
        let attempt = stages.iter().position(|stage| *stage == form.attempt()).unwrap_or_default();
        let mut at = 0;
        for _ in 0..ATTEMPTS {
            match self.attempt(stages.get(at..).unwrap_or_default()).await? {
                Next::Done(stored) => return Ok((stored, self.gone)),
                Next::Stage | Next::Attempt => at = attempt,
            }
            // A failed attempt releases its guard, claim and lock.
            (self.guard, self.claim, self.turn) = (None, None, None);
        }
        Err(self.modified())
    }

    async fn attempt(&mut self, stages: &[Stage]) -> ApiResult<Next> {
        for stage in stages {
            #[cfg(test)]
            super::write_tests::note(*stage);
            match self.stage(*stage).await? {
                Next::Stage => {}
                other => return Ok(other),
            }
        }
        let stored = self.written.take().ok_or_else(|| ApiError::internal("a write has no end"))?;
        // A removed object is returned in its last state.
        let stored = if self.gone { stored } else { self.backend.converted(self.resource, stored).await? };
        Ok(Next::Done(stored))
    }

    async fn stage(&mut self, stage: Stage) -> ApiResult<Next> {
        match stage {
            Stage::Load => self.load().await?,
            Stage::Merge => self.merge()?,
            Stage::Preconditions => self.preconditions()?,
            Stage::Wipe => prepare::wipe(&mut self.object),
            Stage::Owners => self.owners().await?,
            Stage::PatchedVersion | Stage::Version => self.version(),
            Stage::Mutate => self.mutate().await?,
            Stage::Identity => self.identity()?,
            Stage::ExtraRights => self.extra_rights()?,
            Stage::Served => self.served()?,
            Stage::Name => self.make_name(),
            Stage::Namespace => {
                self.guard = self.backend.namespace_guard(self.resource, self.ns, object::name(&self.object)).await?;
            }
            Stage::Prepare => self.prepare(),
            Stage::Allocate => {
                let old = self.old.as_ref().map(|old| &old.object);
                self.claim =
                    Some(self.backend.allocator.claim(self.resource, &mut self.object, old, self.change.dry)?);
            }
            Stage::Validate => validate::validate(self.resource, &self.object, self.before(), self.change)?,
            Stage::Warn => validate::warn(self.resource, &self.object, self.before(), self.change),
            Stage::OwnersTimes => {
                if let Some(old) = &self.old {
                    fields::keep_times(&mut self.object, &old.object);
                }
            }
            Stage::ParamRights => {
                policy_rights::check(self.backend, self.change, self.resource, &self.object, self.before()).await?;
            }
            Stage::Admit => self.admit().await?,
            Stage::Mark => self.mark(),
            Stage::Quota => {
                let quotas = &self.backend.quotas;
                self.turn = quotas.within(self.backend, self.resource, self.ns, &self.object, self.before()).await?;
            }
            Stage::DryRun if self.change.dry => return self.dry_run().await.map(Next::Done),
            Stage::DryRun => {}
            Stage::DefaultStatus => prepare::default_status(self.resource, &mut self.object),
            Stage::Store => return self.store().await,
            Stage::Audit => {
                self.backend.audit_annotations(self.change, self.resource, &self.object, self.before());
            }
            Stage::Establish => {
                self.backend.after_write(self.resource, &self.key().name, &self.change.sub).await?;
            }
        }
        Ok(Next::Stage)
    }

    fn before(&self) -> Option<&Object> {
        self.old.as_ref().map(|old| &old.object)
    }

    fn key(&self) -> Key {
        let name = if self.old.is_some() { self.name.as_str() } else { object::name(&self.object) };
        self.resource.key(self.ns, name)
    }

    fn modified(&self) -> ApiError {
        ApiError::modified(&self.resource.group, &self.resource.plural, &self.name)
    }

    async fn load(&mut self) -> ApiResult<()> {
        let missing = || ApiError::not_found(&self.resource.group, &self.resource.plural, &self.name);
        let stored = self.backend.stored(&self.resource.key(self.ns, &self.name)).await?.ok_or_else(missing)?;
        let seen = self.backend.converted(self.resource, stored.clone()).await?;
        let object = self.backend.load(self.resource, &seen)?;
        if let Action::Gone(_) = self.action {
            self.object = object.clone();
        }
        self.old = Some(Present { stored, object });
        Ok(())
    }

    fn merge(&mut self) -> ApiResult<()> {
        if let (Action::Changed(make), Some(old)) = (&mut self.action, &self.old) {
            self.object = make(&old.object)?;
        }
        Ok(())
    }

    fn preconditions(&self) -> ApiResult<()> {
        let Some(old) = &self.old else { return Ok(()) };
        if let Action::Gone(options) = self.action {
            return deletion::preconditions(self.resource, &old.object, old.stored.rev, options);
        }
        self.same_version()?;
        same_uid(self.change, self.resource, &self.object, &old.object)
    }

    /// A resourceVersion in the wanted object must match the stored one.
    fn same_version(&self) -> ApiResult<()> {
        let asked = object::resource_version(&self.object).ok().flatten();
        let other = |old: &Present| asked.is_some_and(|rev| rev != old.stored.rev);
        if self.old.as_ref().is_some_and(other) { Err(self.modified()) } else { Ok(()) }
    }

    async fn owners(&mut self) -> ApiResult<()> {
        let live = self.old.as_ref().map(|old| &old.object);
        self.backend.update_managed_fields(self.change, self.resource, live, &mut self.object).await
    }

    /// Sets a missing resourceVersion to the present one.
    fn version(&mut self) {
        if let Some(old) = &self.old {
            let rev = old.stored.rev;
            metadata_mut(&mut self.object).entry("resourceVersion").or_insert_with(|| json!(rev.to_string()));
        }
    }

    async fn mutate(&mut self) -> ApiResult<()> {
        let (backend, change, resource, ns) = (self.backend, self.change, self.resource, self.ns);
        if let Some(old) = &self.old {
            let subject = Subject::of(resource, ns, &self.name);
            backend.admission.admit(backend, change, subject, &mut self.object, Some(&old.object)).await?;
            return self.same_version();
        }
        if !backend.admission.mutates(backend, resource).await? {
            return Ok(());
        }
        // Webhooks are not called if the namespace is absent or terminating.
        backend.namespace_guard(resource, ns, object::name(&self.object)).await?;
        let name = object::name(&self.object).to_owned();
        backend.admission.admit(backend, change, Subject::of(resource, ns, &name), &mut self.object, None).await?;
        prepare::fit_namespace(resource, &mut self.object, ns)?;
        prepare::unversioned(&self.object)
    }

    fn identity(&mut self) -> ApiResult<()> {
        prepare::fit_namespace(self.resource, &mut self.object, self.ns)?;
        let Some(old) = &self.old else { return Ok(()) };
        prepare::same_identity(self.resource, &self.object, &old.object, &self.change.sub)
    }

    fn extra_rights(&self) -> ApiResult<()> {
        let (auth, change, resource) = (&self.backend.auth, self.change, self.resource);
        escalation::check(&auth.index, &change.user, resource, self.ns, &self.object, self.before())?;
        match self.before() {
            Some(before) => signers::check(auth, change, resource, &self.object, before),
            None => Ok(()),
        }
    }

    fn served(&self) -> ApiResult<()> {
        if !self.resource.terminating {
            return Ok(());
        }
        let why = "create not allowed while custom resource definition is terminating";
        Err(ApiError::forbidden(&self.resource.group, &self.resource.plural, object::name(&self.object), why))
    }

    /// Starts an attempt for a new object from its state after the mutating webhooks, and generates a name if needed.
    fn make_name(&mut self) {
        let Action::New(wanted) = &mut self.action else { return };
        if wanted.is_empty() {
            *wanted = std::mem::take(&mut self.object);
            object::name(wanted).clone_into(&mut self.name);
        }
        self.object = wanted.clone();
        let prefix = object::meta_str(&self.object, "generateName");
        if self.name.is_empty() && !prefix.is_empty() {
            let name = meta::generate(prefix, &self.backend.given);
            metadata_mut(&mut self.object).insert("name".into(), json!(name));
        }
    }

    fn prepare(&mut self) {
        match &self.old {
            Some(old) => prepare::update(self.resource, &mut self.object, &old.object, &self.change.sub),
            None => {
                prepare::create(self.resource, &mut self.object, &self.backend.given);
                self.resource.strategy.set_requester(&mut self.object, &self.change.user);
            }
        }
    }

    async fn admit(&mut self) -> ApiResult<()> {
        let (backend, change, resource) = (self.backend, self.change, self.resource);
        let deleted = matches!(self.action, Action::Gone(_));
        let subject = |name| Subject::of(resource, self.ns, name);
        match &self.old {
            Some(old) if deleted => {
                let name = if change.verb == Verb::DeleteCollection { "" } else { self.name.as_str() };
                backend.admission.admit_delete(backend, change, subject(name), &old.object).await
            }
            Some(old) => {
                let (subject, old) = (subject(&self.name), &old.object);
                backend.admission.admit_final(backend, change, subject, &self.object, Some(old)).await
            }
            None => {
                let subject = subject(object::name(&self.object));
                backend.admission.admit_final(backend, change, subject, &self.object, None).await
            }
        }
    }

    fn mark(&mut self) {
        let (Action::Gone(options), Some(old)) = (&self.action, &self.old) else { return };
        deletion::mark(self.resource, &mut self.object, options, &self.backend.given.stamp());
        self.gone = prepare::may_go(self.resource, &self.object);
        if self.gone && !object::is_deleting(&old.object) {
            // An object that is removed at once never shows deletion marks.
            self.object = old.object.clone();
        }
    }

    async fn dry_run(&mut self) -> ApiResult<Stored> {
        if self.old.is_none() && self.backend.stored(&self.key()).await?.is_some() {
            return Err(self.already_exists());
        }
        let rev = self.old.as_ref().map_or(0, |old| old.stored.rev);
        Ok(Stored { rev, tail: self.resource.tail(std::mem::take(&mut self.object)) })
    }

    fn already_exists(&self) -> ApiError {
        ApiError::already_exists(&self.resource.group, &self.resource.plural, object::name(&self.object))
    }

    /// Takes the object. The stages that follow, and errors, need no more than its name and its annotations; another
    /// attempt makes it anew.
    fn take_object(&mut self) -> Object {
        let rest = ["name", "namespace", "annotations"].into_iter().filter_map(|key| {
            let value = object::metadata(&self.object).get(key)?.clone();
            Some((key.to_owned(), value))
        });
        let rest = Object::from_iter([("metadata".to_owned(), rest.collect::<Object>().into())]);
        std::mem::replace(&mut self.object, rest)
    }

    async fn store(&mut self) -> ApiResult<Next> {
        let (backend, resource, key) = (self.backend, self.resource, self.key());
        let object = self.take_object();
        let outcome = match &self.old {
            Some(old) if self.gone => backend.drop_now(resource, &key, object, &old.stored).await,
            old => {
                let (object, kept) = backend.to_storage(resource, object).await?;
                let old = old.as_ref().map(|old| &old.stored);
                backend.put(kept.as_deref().unwrap_or(resource), key, object, old, self.guard.take()).await
            }
        };
        match outcome {
            Ok(stored) => self.written = Some(stored),
            Err(WriteError::Conflict) if self.old.is_none() && !self.name.is_empty() => {
                return Err(self.already_exists());
            }
            Err(WriteError::Conflict | WriteError::Guard) => return Ok(Next::Attempt),
            Err(other) => return Err(write_failed(other)),
        }
        Ok(Next::Stage)
    }
}

impl Backend {
    /// Creates a decoded object in its namespace.
    pub async fn insert(&self, change: &Change, resource: &Resource, object: Object, ns: &str) -> ApiResult<Stored> {
        let form = if change.applied { Form::CreateApplied } else { Form::Create };
        let name = object::name(&object).to_owned();
        let mut write = Write::new(self, change, (resource, ns), &name, Action::New(Object::new()));
        write.object = object;
        write.run(form).await.map(|(stored, _)| stored)
    }

    /// Changes an object. `make` computes the wanted object from the present one, and runs again after a conflict. A
    /// resourceVersion or UID in the wanted object must match the present one's.
    pub async fn change(
        &self,
        change: &Change,
        resource: &Resource,
        ns: &str,
        name: &str,
        mut make: impl FnMut(&Object) -> ApiResult<Object> + Send,
    ) -> ApiResult<Stored> {
        let (part, patched) = (!change.sub.is_empty(), change.verb == Verb::Patch);
        let form = Form::of_change(part, patched, change.applied, change.admitted);
        let write = Write::new(self, change, (resource, ns), name, Action::Changed(&mut make));
        write.run(form).await.map(|(stored, _)| stored)
    }

    /// Begins or completes the deletion of an object.
    pub async fn remove(
        &self,
        change: &Change,
        resource: &Resource,
        ns: &str,
        name: &str,
        options: &Options,
    ) -> ApiResult<Deleted> {
        let form = if change.admitted { Form::Empty } else { Form::Delete };
        let (stored, gone) = Write::new(self, change, (resource, ns), name, Action::Gone(options)).run(form).await?;
        Ok(if gone { Deleted::Gone(stored) } else { Deleted::Waiting(stored) })
    }

    async fn drop_now(
        &self,
        resource: &Resource,
        key: &Key,
        object: Object,
        old: &Stored,
    ) -> Result<Stored, WriteError> {
        let tail = resource.tail(object);
        let write = crate::store::Write {
            key: key.clone(),
            expect: Expect::Rev(old.rev),
            op: Op::Delete(tail.clone()),
            guard: None,
        };
        let rev = self.store.write(write).await?;
        let stored = Stored { rev, tail };
        if resource.strategy.defines_resources() {
            self.definition_changed(&key.name, &stored, true);
        }
        self.seen(key, rev, None);
        Ok(stored)
    }

    /// Guards the namespace against changes until the commit. It must exist and not be terminating.
    async fn namespace_guard(&self, resource: &Resource, ns: &str, name: &str) -> ApiResult<Option<Guard>> {
        if !resource.namespaced {
            return Ok(None);
        }
        let catalog = self.registry.catalog();
        let namespaces = catalog.find("", "v1", "namespaces").ok_or_else(ApiError::unknown_path)?;
        let key = namespaces.key("", ns);
        let Some(stored) = self.stored(&key).await? else {
            return Err(ApiError::not_found("", "namespaces", ns));
        };
        if object::is_deleting(&self.load(namespaces, &stored)?) {
            let why = format!("unable to create new content in namespace {ns} because it is being terminated");
            return Err(ApiError::forbidden(&resource.group, &resource.plural, name, &why).with_cause(
                "NamespaceTerminating",
                "metadata.namespace",
                format!("namespace {ns} is being terminated"),
            ));
        }
        Ok(Some(Guard::Unchanged(key, stored.rev)))
    }

    /// Runs hooks after a write, before it is acknowledged: a definition gets its names accepted.
    pub fn after_write<'a>(
        &'a self,
        resource: &'a Resource,
        name: &'a str,
        sub: &'a str,
    ) -> Pin<Box<dyn Future<Output = ApiResult<()>> + Send + 'a>> {
        Box::pin(async move {
            // Writes the status, which triggers no further hooks.
            let definition = resource.strategy.defines_resources() && sub.is_empty();
            if definition { self.establish_definition(name).await } else { Ok(()) }
        })
    }
}

/// Checks that a UID in the wanted object matches the present one's.
pub fn same_uid(change: &Change, resource: &Resource, wanted: &Object, before: &Object) -> ApiResult<()> {
    let (asked, found) = (object::meta_str(wanted, "uid"), object::meta_str(before, "uid"));
    if asked.is_empty() || asked == found {
        return Ok(());
    }
    let name = object::name(before);
    if change.verb == Verb::Patch {
        let immutable = FieldError::invalid("metadata.uid", &json!(asked), "field is immutable");
        return Err(ApiError::invalid(&resource.group, &resource.kind, name, &[immutable.clone(), immutable]));
    }
    let folder = resource.strategy.registry_folder(resource);
    let ns = object::meta_str(before, "namespace");
    let place = if resource.namespaced { format!("{ns}/{name}") } else { name.to_owned() };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{folder}/{place}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {asked}, UID in object meta: {found}"
    );
    Err(ApiError::conflict(&resource.group, &resource.plural, name, &why))
}

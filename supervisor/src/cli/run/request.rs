//! From a run file to the request that the supervisor gets: paths read, variables filled, everything checked.
use super::file::{Loaded, Model, ModelKind, Registries, Text, read_text};
use super::variables::Variables;
use crate::cli::Failure;
use crate::cli::policy::files::load;
use crate::registries::HostRegistries;
use crate::runs::{Environment, ModelChoice, RunRequest};
use sallyport_policy::{PolicyText, Who};
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

/// Largest file that is taken along, in bytes.
const FILE_LIMIT: u64 = 1 << 20;

/// Reads all that a run file names.
#[derive(Debug)]
pub(super) struct Resolver<'a> {
    loaded: &'a Loaded,
    variables: &'a Variables,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(loaded: &'a Loaded, variables: &'a Variables) -> Self {
        Self { loaded, variables }
    }

    /// The request, with the registries of this host where the file wants them.
    pub(super) fn request(&self, registries: Option<HostRegistries>) -> Result<RunRequest, Failure> {
        let file = &self.loaded.file;
        let mut environment = self.environment()?;
        let mut policies = self.policies()?;
        if let Some(registries) = registries {
            for (name, value) in registries.env {
                environment.env.entry(name).or_insert(value);
            }
            policies.push(registries.policy);
        }
        Ok(RunRequest {
            title: file.title.clone(),
            task: file.task.clone(),
            who: Who {
                team: file.who.team.clone(),
                repository: file.who.repository.clone(),
                environment: file.environment.name.clone(),
                labels: file.who.labels.clone(),
                ..Who::default()
            },
            policies,
            model: self.model(&file.model)?,
            environment,
            step_limit: file.step_limit,
        })
    }

    /// Whether the host's registries are wanted.
    pub(super) fn wants_registries(&self) -> bool {
        self.loaded.file.environment.registries == Some(Registries::Host)
    }

    /// A text with its variables filled in.
    pub(super) fn fill(&self, text: &Text) -> Result<String, Failure> {
        self.variables
            .fill(&text.value)
            .map_err(|why| self.loaded.wrong(text, &why))
    }

    /// A path, relative to the run file's folder.
    pub(super) fn path(&self, text: &Text) -> Result<PathBuf, Failure> {
        Ok(self.loaded.here.join(self.fill(text)?))
    }

    fn content(&self, text: &Text) -> Result<String, Failure> {
        let path = self.path(text)?;
        read_text(&path, FILE_LIMIT)
            .map_err(|why| self.loaded.wrong(text, &format!("`{}` {why}", path.display())))
    }

    fn environment(&self) -> Result<Environment, Failure> {
        let from = &self.loaded.file.environment;
        let mut hosts = BTreeMap::new();
        for (name, text) in &from.hosts {
            let address: IpAddr = self.fill(text)?.parse().map_err(|_| {
                self.loaded
                    .wrong(text, &format!("the address of `{name}` must be an IP address"))
            })?;
            hosts.insert(name.clone(), address);
        }
        let mut binds = Vec::new();
        for (inside, text) in &from.binds {
            let folder = self.path(text)?;
            if !folder.exists() {
                return Err(self
                    .loaded
                    .wrong(text, &format!("`{}` does not exist", folder.display())));
            }
            binds.push((
                folder.display().to_string(),
                absolute_inside(inside, text, self.loaded)?,
            ));
        }
        let mut files = BTreeMap::new();
        for (inside, text) in &from.files {
            files.insert(absolute_inside(inside, text, self.loaded)?, self.content(text)?);
        }
        let mut env = BTreeMap::new();
        for (name, text) in &from.env {
            env.insert(name.clone(), self.fill(text)?);
        }
        let upstream_roots_pem = from
            .upstream_ca
            .as_ref()
            .map(|text| self.content(text))
            .transpose()?;
        Ok(Environment {
            name: from.name.clone(),
            env,
            hosts,
            upstream_roots_pem: upstream_roots_pem.unwrap_or_default(),
            binds,
            files,
        })
    }

    fn model(&self, model: &Model) -> Result<ModelChoice, Failure> {
        let missing = |what: &str| {
            self.loaded
                .wrong(&model.kind, &format!("this kind of model needs `{what}`"))
        };
        let base_url = model.base_url.as_ref().map(|text| self.fill(text)).transpose()?;
        let name = || {
            model
                .model
                .as_ref()
                .ok_or_else(|| missing("model"))
                .and_then(|text| self.fill(text))
        };
        let misplaced =
            |text: &Spanned<String>| self.loaded.wrong(text, "this kind of model has no such field");
        match (model.kind.value, &model.turns) {
            (ModelKind::Scripted, Some(turns)) => match model.model.as_ref().or(model.base_url.as_ref()) {
                Some(text) => Err(misplaced(text)),
                None => Ok(ModelChoice::Scripted {
                    turns: self.content(turns)?,
                }),
            },
            (ModelKind::Scripted, None) => Err(missing("turns")),
            (_, Some(turns)) => Err(misplaced(turns)),
            (ModelKind::Anthropic, None) => Ok(ModelChoice::Anthropic {
                model: name()?,
                base_url,
            }),
            (ModelKind::Openai, None) => Ok(ModelChoice::Openai {
                model: name()?,
                base_url,
            }),
        }
    }

    /// The policy and every file that it includes, directly or not.
    fn policies(&self) -> Result<Vec<PolicyText>, Failure> {
        let text = &self.loaded.file.policy;
        let path = self.loaded.path.with_file_name("").join(self.fill(text)?);
        load(&path).map_err(|fault| self.loaded.wrong(text, &format!("the policy {fault}")))
    }
}

fn absolute_inside(inside: &str, text: &Text, loaded: &Loaded) -> Result<String, Failure> {
    if inside.starts_with('/') {
        return Ok(inside.to_owned());
    }
    Err(loaded.wrong(
        text,
        &format!("`{inside}` must be an absolute path inside the machine"),
    ))
}

#[cfg(test)]
mod tests;

//! `sallyport run`: starts a run from a file and shows its conversation until it ends. Where no supervisor is up,
//! one is started for as long as the run lasts.
mod file;
mod request;
mod services;
mod variables;

use super::client::Supervisor;
use super::conversation::{Teller, follow_to_end};
use super::up::{INTERRUPTED, Place, signal};
use super::{Failure, Screen, plain};
use crate::conversation::Outcome;
use crate::registries::Registries;
use crate::runs::RunSummary;
use crate::state_dir::StateDir;
use crate::up::programs;
use file::Loaded;
use request::Resolver;
use services::Service;
use std::path::PathBuf;
use std::process::ExitCode;
use variables::Variables;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Run file, or a folder with a `run.yaml`
    #[arg(value_name = "FILE|DIR")]
    file: PathBuf,
    /// Print the run's id and leave it to the supervisor that is up
    #[arg(long, conflicts_with = "follow")]
    detach: bool,
    /// Show the conversation until the run ends; this is what it does by itself
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    place: Place,
}

pub(super) async fn run(state: &StateDir, args: Args) -> Result<ExitCode, Failure> {
    let loaded = Loaded::read(&args.file)?;
    if args.detach && !loaded.file.services.is_empty() {
        return Err(Failure::with_code(
            2,
            "`--detach` does not go with a run file that has `services`: they end with this command",
        ));
    }
    let supervisor = Supervisor::of(state)?;
    let own = match supervisor.is_up().await {
        true => None,
        false if args.detach => return Err(supervisor.missing()),
        false => Some(super::up::start(state, &args.place.or_any()).await?),
    };
    let job = Job {
        state,
        loaded: &loaded,
        supervisor: &supervisor,
        detach: args.detach,
    };
    let ended = tokio::select! {
        ended = job.run() => ended,
        signal = signal() => signal.map(|()| job.left(own.is_some())),
    };
    if let Some(own) = own {
        tokio::select! {
            () = own.stop() => {}
            second = signal() => return second.and(Err(Failure::with_code(INTERRUPTED, "stopped at once"))),
        }
    }
    ended
}

struct Job<'a> {
    state: &'a StateDir,
    loaded: &'a Loaded,
    supervisor: &'a Supervisor,
    detach: bool,
}

impl Job<'_> {
    async fn run(&self) -> Result<ExitCode, Failure> {
        let mut variables = Variables::default();
        variables.set("state", self.state.root().display().to_string());
        variables.set("here", self.loaded.here.display().to_string());
        let mut services = Vec::new();
        let ended = match self.start_services(&mut services, &mut variables).await {
            Ok(()) => self.with_services(&variables).await,
            Err(failure) => Err(failure),
        };
        for service in services {
            service.stop().await;
        }
        ended
    }

    async fn start_services(
        &self,
        services: &mut Vec<Service>,
        variables: &mut Variables,
    ) -> Result<(), Failure> {
        self.state.prepare()?;
        for wanted in &self.loaded.file.services {
            let known = variables.clone();
            let resolver = Resolver::new(self.loaded, &known);
            let mut argv = wanted
                .command
                .iter()
                .map(|text| resolver.fill(text))
                .collect::<Result<Vec<_>, _>>()?;
            if let Some(program) = argv.first_mut() {
                *program = programs::beside_or_in_path(program);
            }
            services.push(Service::start(&wanted.name, &argv, &self.loaded.here, variables).await?);
        }
        Ok(())
    }

    async fn with_services(&self, variables: &Variables) -> Result<ExitCode, Failure> {
        let resolver = Resolver::new(self.loaded, variables);
        for (name, text) in &self.loaded.file.secrets {
            super::secret::set_from_file(self.state, name, &resolver.path(text)?).await?;
        }
        let registries = Registries::default();
        let registries = match resolver.wants_registries() {
            true => Some(
                registries
                    .get()
                    .await
                    .map_err(|error| Failure::new(error.to_string()))?
                    .clone(),
            ),
            false => None,
        };
        let request = resolver.request(registries)?;
        let key = uuid::Uuid::now_v7().to_string();
        let run = self.supervisor.start(&request, &key).await?;
        if self.detach {
            Screen::stdout().line(&run.id);
            return Ok(ExitCode::SUCCESS);
        }
        self.follow(&run).await
    }

    async fn follow(&self, run: &RunSummary) -> Result<ExitCode, Failure> {
        let screen = Screen::stdout();
        screen.line(&format!("run {}  {}", run.id, plain::line(&run.title)));
        let mut teller = Teller::new(screen);
        let outcome = follow_to_end(self.supervisor, &run.id, &mut |entry| teller.tell(entry)).await?;
        Ok(match outcome {
            Outcome::Done => ExitCode::SUCCESS,
            Outcome::Failed | Outcome::Stopped => ExitCode::FAILURE,
        })
    }

    /// A person left: what becomes of the run.
    fn left(&self, own: bool) -> ExitCode {
        let state = self.state.root().display();
        let text = if own {
            format!("the run stands still; `sallyport up --state {state}` goes on with it")
        } else {
            "the run goes on; see `sallyport ls`, and `sallyport logs RUN --follow`".to_owned()
        };
        Screen::stderr().line(&text);
        ExitCode::from(INTERRUPTED)
    }
}

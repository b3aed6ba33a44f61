//! What a machine may know of its run's credentials: told when it is set up, when it asks, and when they change.
use crate::activity::Context;
use crate::machine::Machine;
use sallyport_gateway::control::types::CredentialView;
use sallyport_policy::Lender;
use sallyport_shim::wire::KnownCredential;

/// Asks the gateway and tells the machine. What cannot be told is in the log: the machine goes on with what it knows.
pub(super) async fn tell(context: &Context, machine: &Machine) {
    let told = match context.hands.door.session(&context.run).await {
        Ok(view) => {
            let known = view.credentials.into_iter().map(known).collect();
            machine
                .credentials(known)
                .await
                .map_err(|fault| fault.to_string())
        }
        Err(fault) => Err(fault.to_string()),
    };
    if let Err(fault) = told {
        tracing::warn!(run = %context.run, %fault, "the machine is not told of its credentials");
    }
}

/// Asks and tells, where a machine is connected.
pub async fn tell_again(context: &Context) {
    if let Some((_, machine)) = context.link.current().await {
        tell(context, &machine).await;
    }
}

fn known(view: CredentialView) -> KnownCredential {
    let lender = view.lender.map(|lender| match lender {
        Lender::Policy => "policy",
        Lender::Person => "person",
    });
    KnownCredential {
        name: view.name,
        purpose: view.purpose,
        env: view.env,
        placeholder: view.placeholder,
        hosts: view.hosts,
        ports: view.ports,
        places: view.places,
        user: view.user,
        throughout: view.throughout,
        lender: lender.map(str::to_owned),
        lent_at: view.lent_at,
    }
}

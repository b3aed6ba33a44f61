//! The end of a run: its machines and its session go.
use crate::activity::{Context, Hands};
use crate::gateway::GatewayError;
use crate::machine::MachineRecord;
use crate::run::event::Event;

/// Destroys every machine of the run and ends its session. What cannot be removed is told to people.
pub(super) async fn close_all(context: &Context) -> Event {
    context.link.drop_all().await;
    Event::Closed {
        notes: remove(&context.hands, &context.run).await,
    }
}

/// Removes machines and session; what cannot be removed, as sentences.
pub async fn remove(hands: &Hands, run: &str) -> Vec<String> {
    let mut notes = Vec::new();
    match hands.ask_machine(|| hands.driver.list()).await {
        Err(fault) => notes.push(format!(
            "the run's machines cannot be found: {fault}; they may still be there"
        )),
        Ok(machines) => {
            for record in machines.iter().filter(|record| belongs(run, record)) {
                if let Err(fault) = hands.ask_machine(|| hands.driver.destroy(record)).await {
                    notes.push(format!("machine `{}` cannot be removed: {fault}", record.id));
                }
            }
        }
    }
    match hands.ask_door(|| hands.door.delete_session(run)).await {
        Ok(()) => {}
        Err(GatewayError::Refused(problem)) if problem.status == 404 => {}
        Err(fault) => notes.push(format!("the session cannot be ended: {fault}")),
    }
    notes
}

/// Whether a machine is one of this run's: the run's id, or the id and a number.
pub fn belongs(run: &str, record: &MachineRecord) -> bool {
    match record.id.strip_prefix(run) {
        Some("") => true,
        Some(rest) => rest
            .strip_prefix('-')
            .is_some_and(|number| number.parse::<u32>().is_ok()),
        None => false,
    }
}

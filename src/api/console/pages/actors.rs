//! The supervision tree with its strategies and limits, the actors that do not run, and the injection of faults if it is enabled.
pub(crate) mod actor_page;
mod load;
mod tree;
mod tree_view;

use maud::{Markup, html};

use crate::admin::actors::fault;
use crate::admin::live_events::log_operator_action;
use crate::console::form;
use crate::console::format::pluralize;
use crate::console::layout::{self, Page};
use crate::console::links::link;
use crate::error::Problem;
use crate::request::context::RequestContext;
use crate::request::response::RouteResult;
use tree::{ActorTree, is_running};
use tree_view::TreeView;

pub(crate) async fn show(context: RequestContext) -> RouteResult {
    let query = context.query();
    let search_text = query.non_empty("q")?.unwrap_or_default();
    let dispatch = &context.state.dispatch;
    let faults = dispatch.faults_enabled();
    let all = dispatch.actors();
    let (total, not_running) =
        (all.len() as u64, all.iter().filter(|actor| !is_running(actor)).cloned().collect::<Vec<_>>());
    let load = load::load_table(&all, &context.state.actor_load.by_kind());
    let tree = ActorTree::build(dispatch.supervisors(), all, search_text);
    let csrf = form::csrf_field(&context);
    let view = TreeView { csrf: faults.then_some(&csrf), opened: !search_text.is_empty() };
    let main = html! {
        @if faults {
            p class="warning" { strong { "Fault injection is enabled: " } "an opened actor has buttons that make it fail, and its supervisor restarts it. Do not enable it in production." }
        }
        (search(search_text, total, not_running.len() as u64))
        @if !not_running.is_empty() && search_text.is_empty() {
            section class="card trouble" {
                h2 { "Trouble" }
                ul class="tree" { @for actor in &not_running { (view.actor(actor, "trouble")) } }
            }
        }
        section class="card" {
            h2 { "Supervision tree" }
            @if tree.is_empty() { p { "No actor matches." } }
            (view.tree(&tree))
        }
        @if search_text.is_empty() { section class="card" { h2 { "Messages" } (load) } }
        p class="quiet" { a href="/actuator/metrics/actor_restarts_total" { "actor_restarts_total" } " · "
            a href="/actuator/metrics/actor_mailbox_depth" { "actor_mailbox_depth" } }
    };
    let page = Page {
        tab: "Actors",
        refreshes: true,
        title: "Actors",
        main,
        path: "/admin/actors",
        command: "posthaste actors tree",
    };
    layout::show(&context, &page)
}

fn search(search_text: &str, total: u64, not_running: u64) -> Markup {
    html! {
        form method="get" action="/console/actors" class="filter" role="search" {
            label { "Search " input type="search" name="q" value=(search_text) placeholder="partition-worker-7, panic" autocomplete="off"; }
            button { "Search" }
            @if !search_text.is_empty() { a href=(link("/console/actors", &[])) { "Clear" } }
            span class="quiet" { (pluralize(total, "actor", "actors")) ", "
                @if not_running == 0 { "all run" } @else { strong class="bad" { (not_running) " not running" } } }
        }
    }
}

pub(crate) async fn inject(context: RequestContext) -> RouteResult {
    let form = form::read(&context.body)?;
    let (path, action) = (form.non_empty("path")?.unwrap_or_default(), form.non_empty("action")?.unwrap_or_default());
    let kind = fault(action).ok_or_else(|| Problem::not_found("no such action"))?;
    let operator = context.identity()?.subject.as_str();
    context.state.dispatch.inject(path, kind, operator).map_err(|error| Problem::not_found(error.to_string()))?;
    log_operator_action(&context.state, operator, action, path, "a drill");
    Ok(layout::see_other_with_flash(&context, "/console/actors", format!("{path}: {action} was injected.")))
}

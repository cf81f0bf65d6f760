//! A server without clock and network: keys, and a Lua 5.1 with Redis's restrictions that runs the
//! scripts on them.

use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use mlua::Function;
use mlua::Lua;
use mlua::LuaOptions;
use mlua::MultiValue;
use mlua::StdLib;
use mlua::Table;

use crate::backend::Script;
use crate::backend::ScriptCall;
use crate::backend::Value;
use crate::backend::memory::store::CommandReply;
#[cfg(test)]
use crate::backend::memory::store::Dumped;
use crate::backend::memory::store::Published;
use crate::backend::memory::store::Refusal;
#[cfg(test)]
use crate::backend::memory::store::Snapshot;
use crate::backend::memory::store::Store;
#[cfg(test)]
use crate::backend::memory::store::Stored;
use crate::backend::memory::store::numbers::text_of;
use crate::backend::words::Words;

/// The globals that scripts have besides `redis`, `KEYS` and `ARGV`.
const GLOBALS: [&str; 3] = ["pcall", "tonumber", "type"];
const LIBRARIES: [(&str, &[&str]); 2] =
    [("math", &["floor", "max", "min"]), ("string", &["byte", "format", "gsub", "match"])];

/// Protects the globals as Redis does.
const PROTECTION: &str = r#"
return {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
  __newindex = function() error("Attempt to modify a readonly table", 2) end,
}
"#;

/// The keys of one server, and the interpreter. It is deterministic: each call is given the time.
pub(crate) struct Keyspace {
    lua: Lua,
    environment: Table,
    store: Arc<Mutex<Store>>,
    compiled: Vec<(&'static Script, Function)>,
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace").field("store", &self.store()).finish_non_exhaustive()
    }
}

impl Default for Keyspace {
    fn default() -> Self {
        Self::new()
    }
}

impl Keyspace {
    pub(crate) fn new() -> Self {
        Self::build().expect("a fresh interpreter takes a few tables and functions")
    }

    fn build() -> mlua::Result<Self> {
        let lua = Lua::new_with(StdLib::MATH | StdLib::STRING, LuaOptions::default())?;
        let store = Arc::new(Mutex::new(Store::default()));
        let environment = environment(&lua, &store)?;
        Ok(Self { lua, environment, store, compiled: Vec::new() })
    }

    /// Runs a script at this time of the server's clock, in microseconds.
    ///
    /// # Errors
    ///
    /// The error's text as Redis sends it. What the script had written until then stays, as in
    /// Redis.
    pub(crate) fn run(&mut self, now_us: i64, call: &ScriptCall) -> Result<Value, String> {
        let function = self.function(call.script)?;
        self.store().begin(now_us, &call.keys)?;
        let result = self.enter(&function, call);
        self.store().end();
        let value = result.map_err(|error| error_text(&error, call.script))?;
        reply(value)
    }

    /// The compiled script.
    fn function(&mut self, script: &'static Script) -> Result<Function, String> {
        if let Some((_, function)) =
            self.compiled.iter().find(|(known, _)| std::ptr::eq(*known, script))
        {
            return Ok(function.clone());
        }
        let chunk = self.lua.load(script.text()).set_name("@user_script");
        let function =
            chunk.set_environment(self.environment.clone()).into_function().map_err(|error| {
                format!("ERR Error compiling script (new function): {}", message(&error))
            })?;
        self.compiled.push((script, function.clone()));
        Ok(function)
    }

    fn enter(&self, function: &Function, call: &ScriptCall) -> mlua::Result<mlua::Value> {
        let texts = |words: &Words| self.lua.create_sequence_from(words.iter());
        self.environment.raw_set("KEYS", texts(&call.keys)?)?;
        self.environment.raw_set("ARGV", texts(&call.args)?)?;
        function.call(())
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        locked(&self.store)
    }
}

/// What the server around the keyspace calls.
impl Keyspace {
    /// EXISTS.
    pub(crate) fn contains(&mut self, now_us: i64, key: &str) -> bool {
        let mut store = self.store();
        store.set_time(now_us);
        store.contains(key)
    }

    /// DEL. Returns whether the key existed.
    pub(crate) fn remove(&mut self, now_us: i64, key: &str) -> bool {
        let mut store = self.store();
        store.set_time(now_us);
        store.remove(key)
    }

    /// FLUSHALL.
    pub(crate) fn flush(&mut self) {
        self.store().clear();
    }

    /// Sets how many receivers PUBLISH or SPUBLISH on a channel reports; 0 at first.
    pub(crate) fn set_subscribers(&mut self, channel: &str, sharded: bool, number: i64) {
        self.store().set_subscribers(channel, sharded, number);
    }

    /// The messages published since the last call, in order.
    pub(crate) fn take_published(&mut self) -> Vec<Published> {
        self.store().take_published()
    }
}

/// What only tests call.
#[cfg(test)]
impl Keyspace {
    /// All live keys, sorted.
    pub(crate) fn dump(&self, now_us: i64) -> Vec<Dumped> {
        let mut store = self.store();
        store.set_time(now_us);
        store.dump()
    }

    /// One live key.
    pub(crate) fn peek(&self, now_us: i64, key: &str) -> Option<Dumped> {
        let mut store = self.store();
        store.set_time(now_us);
        store.peek(key)
    }

    /// The data that a replica would have now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.store().snapshot()
    }

    pub(crate) fn restore(&mut self, snapshot: Snapshot) {
        self.store().restore(snapshot);
    }

    /// Gives a key a value, with a time to live in milliseconds from `now_us` on.
    pub(crate) fn plant(&mut self, now_us: i64, key: &str, value: Stored, pttl: Option<i64>) {
        let mut store = self.store();
        store.set_time(now_us);
        store.plant(key, value, pttl);
    }

    /// Makes the next script fail with this error.
    pub(crate) fn refuse_script(&mut self, error: impl Into<String>) {
        self.store().refuse_script(error.into());
    }

    /// Makes the next script fail with this error whenever it calls one of these commands: `HGET`,
    /// or `HGET lock` for one key or channel only.
    pub(crate) fn refuse_commands(&mut self, commands: &[&str], error: impl Into<String>) {
        let commands = commands.iter().map(|command| (*command).to_owned()).collect();
        self.store().refuse_commands(commands, error.into());
    }

    /// The names of all commands that scripts may use.
    pub(crate) fn command_names() -> impl Iterator<Item = &'static str> {
        Store::command_names()
    }

    /// Gives scripts Redis 7's `redis.acl_check_cmd`.
    pub(crate) fn answer_permissions(
        &mut self,
        allowed: impl Fn(&str, &str) -> bool + Send + 'static,
    ) {
        let answer = self.lua.create_function(move |_, (command, target): (String, String)| {
            if Self::command_names().any(|name| name.eq_ignore_ascii_case(&command)) {
                Ok(allowed(&command, &target))
            } else {
                let words = "ERR Invalid command passed to redis.acl_check_cmd()";
                Err(mlua::Error::RuntimeError(words.to_owned()))
            }
        });
        let redis = self.environment.raw_get::<Table>("redis");
        redis
            .and_then(|redis| redis.raw_set("acl_check_cmd", answer?))
            .expect("a table takes a function");
    }

    /// Simulates that memory is full: the first write of a script must not be one that needs
    /// memory.
    pub(crate) fn set_out_of_memory(&mut self, on: bool) {
        self.store().set_out_of_memory(on);
    }
}

/// The table of globals that all scripts share.
fn environment(lua: &Lua, store: &Arc<Mutex<Store>>) -> mlua::Result<Table> {
    let globals = lua.globals();
    let environment = lua.create_table()?;
    for name in GLOBALS {
        environment.raw_set(name, globals.raw_get::<mlua::Value>(name)?)?;
    }
    for (library, names) in LIBRARIES {
        let (from, to) = (globals.raw_get::<Table>(library)?, lua.create_table()?);
        for name in names {
            to.raw_set(*name, from.raw_get::<mlua::Value>(*name)?)?;
        }
        environment.raw_set(library, to)?;
    }
    let redis = lua.create_table()?;
    redis.raw_set("call", call_function(lua, store, true)?)?;
    redis.raw_set("pcall", call_function(lua, store, false)?)?;
    environment.raw_set("redis", redis)?;
    environment.set_metatable(Some(lua.load(PROTECTION).eval()?));
    Ok(environment)
}

/// `redis.call` raises an error, `redis.pcall` returns it as a table.
fn call_function(lua: &Lua, store: &Arc<Mutex<Store>>, raises: bool) -> mlua::Result<Function> {
    let store = Arc::clone(store);
    lua.create_function(move |lua, arguments: MultiValue| {
        let reply = match words(&arguments) {
            Some(words) => locked(&store).call(&words),
            None => Err(Refusal(
                "ERR Lua redis lib command arguments must be strings or integers".into(),
            )),
        };
        match reply {
            Ok(answer) => to_lua(lua, answer),
            Err(Refusal(text)) if raises => Err(mlua::Error::RuntimeError(text.into_owned())),
            Err(Refusal(text)) => lua.create_table_from([("err", text)]).map(mlua::Value::Table),
        }
    })
}

/// The arguments as strings, or `None` if one is neither a string nor a number.
fn words(arguments: &MultiValue) -> Option<Vec<String>> {
    let word = |value: &mlua::Value| match value {
        mlua::Value::String(text) => Some(text.to_string_lossy()),
        mlua::Value::Integer(number) => Some(text_of(*number as f64)),
        mlua::Value::Number(number) => Some(text_of(*number)),
        _ => None,
    };
    arguments.iter().map(word).collect()
}

fn to_lua(lua: &Lua, answer: CommandReply) -> mlua::Result<mlua::Value> {
    Ok(match answer {
        CommandReply::Nil => mlua::Value::Boolean(false),
        CommandReply::Int(number) => mlua::Value::Number(number as f64),
        CommandReply::Text(text) => mlua::Value::String(lua.create_string(text)?),
        CommandReply::Status(text) => mlua::Value::Table(lua.create_table_from([("ok", text)])?),
        CommandReply::List(list) => {
            let list = list
                .into_iter()
                .map(|answer| to_lua(lua, answer))
                .collect::<mlua::Result<Vec<_>>>()?;
            mlua::Value::Table(lua.create_sequence_from(list)?)
        }
    })
}

/// Converts what a script returned into the reply that Redis would send.
fn reply(value: mlua::Value) -> Result<Value, String> {
    match value {
        mlua::Value::Table(table) => {
            if let Ok(mlua::Value::String(text)) = table.raw_get("err") {
                return Err(text.to_string_lossy());
            }
            if let Ok(mlua::Value::String(text)) = table.raw_get("ok") {
                return Ok(Value::Text(text.to_string_lossy()));
            }
            Ok(Value::List(entries(&table)))
        }
        other => Ok(scalar(&other)),
    }
}

/// The entries of an array, up to the first nil.
fn entries(table: &Table) -> Vec<Value> {
    let values = (1..).map_while(|index| match table.raw_get(index) {
        Ok(mlua::Value::Nil) | Err(_) => None,
        Ok(value) => Some(value),
    });
    values
        .map(|value| match value {
            mlua::Value::Table(inner) => nested(inner),
            other => scalar(&other),
        })
        .collect()
}

/// An error inside an array is converted to its text; no script of ours returns one.
fn nested(table: Table) -> Value {
    reply(mlua::Value::Table(table)).unwrap_or_else(Value::Text)
}

fn scalar(value: &mlua::Value) -> Value {
    match value {
        mlua::Value::Boolean(true) => Value::Int(1),
        mlua::Value::Integer(number) => Value::Int(*number),
        mlua::Value::Number(number) => Value::Int(*number as i64),
        mlua::Value::String(text) => Value::Text(text.to_string_lossy()),
        _ => Value::Nil,
    }
}

/// The text that Redis sends for a script that failed. Where Redis puts the script's SHA-1, this
/// has its name.
fn error_text(error: &mlua::Error, script: &Script) -> String {
    let text = message(error);
    let prefix = if matches!(error, mlua::Error::CallbackError { .. }) { "" } else { "ERR " };
    format!("{prefix}{text} script: {}, on @user_script.", script.name)
}

fn message(error: &mlua::Error) -> String {
    let text = match error {
        mlua::Error::CallbackError { cause, .. } => return message(cause),
        mlua::Error::RuntimeError(text) => text.as_str(),
        mlua::Error::SyntaxError { message, .. } => message.as_str(),
        other => return other.to_string(),
    };
    text.split("\nstack traceback:").next().unwrap_or(text).to_owned()
}

fn locked(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

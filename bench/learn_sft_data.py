"""Prompts for twenty tools: templates with slots, split into training and held-out templates and values.

A held-out prompt shares neither its template nor its slot values with any training prompt, except for the few values of
enumerations and booleans.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from toolwire import Message, Text, Tool, ToolCall
from toolwire.learn import Example, make_example

OFFERED = 5
"""Tools in a prompt: the right one and random others."""


class Slot(NamedTuple):
    """An argument: its schema, and its values for training and for held-out prompts."""

    schema: dict[str, Any]
    train: list[Any]
    test: list[Any]


class Skill(NamedTuple):
    """A tool, its slots by argument, and the templates of its prompts."""

    name: str
    description: str
    slots: dict[str, Slot]
    train: list[str]
    test: list[str]

    @property
    def tool(self) -> Tool:
        properties = {name: slot.schema for name, slot in self.slots.items()}
        schema = {"type": "object", "properties": properties, "required": list(self.slots)}
        return Tool(self.name, self.description, {**schema, "additionalProperties": False})


def _texts(train: str, test: str) -> Slot:
    return Slot({"type": "string"}, train.split("|"), test.split("|"))


def _choices(train: str, test: str) -> Slot:
    """An enumeration; all values are in the schema, and prompts of both sets use them."""
    values = [*train.split("|"), *(value for value in test.split("|") if value not in train.split("|"))]
    return Slot({"type": "string", "enum": values}, train.split("|"), test.split("|"))


def _numbers(start: int, stop: int, step: int = 1) -> Slot:
    """Whole numbers; every fourth is held out."""
    every = list(range(start, stop, step))
    held = every[3::4]
    return Slot({"type": "integer"}, [one for one in every if one not in held], held)


def _amounts(start: int, stop: int) -> Slot:
    every = [number + share for number in range(start, stop) for share in (0.25, 0.5, 0.75)]
    return Slot({"type": "number"}, [one for one in every if int(one) % 4], [one for one in every if not int(one) % 4])


def _dates() -> Slot:
    every = [f"2026-{month:02}-{day:02}" for month in range(1, 13) for day in range(1, 29)]
    return Slot({"type": "string", "format": "date"}, [one for one in every if int(one[-2:]) % 4], every[3::4])


def _times() -> Slot:
    every = [f"{hour:02}:{minute:02}" for hour in range(6, 23) for minute in (0, 10, 15, 30, 40, 45)]
    return Slot(
        {"type": "string"}, [one for one in every if int(one[:2]) % 4], [one for one in every if not int(one[:2]) % 4]
    )


CITIES = _texts(
    "Paris|Rome|Berlin|Tokyo|Madrid|Cairo|Boston|Vienna|Delhi|Oslo|Lima|Dublin|Seoul|Miami|Warsaw|Quito|Hanoi|Zurich|Nairobi|Denver|Milan|Riga|Havana|Dallas|Geneva|Sofia|Accra|Porto|Seattle|Munich",
    "Lisbon|Chicago|Prague|Athens|Helsinki|Toronto|Bangkok|Sydney|Brussels|Kyoto|Naples|Austin",
)
PEOPLE = _texts(
    "Anna|Tom|Maria|David|Lucy|Omar|Elena|Peter|Nina|Jack|Sofia|Ben|Clara|Hugo|Mia|Paul|Iris|Leo|Emma|Karl|Rosa|Adam|Julia|Max",
    "Laura|Simon|Vera|Felix|Grace|Oscar|Diana|Martin|Alice|Victor|Helen|George",
)
DISHES = _texts(
    "pizza|lasagna|chicken curry|tomato soup|pancakes|sushi|tacos|apple pie|fried rice|beef stew|falafel|omelette|ramen|pad thai|potato salad|brownies|paella|goulash|fish soup|banana bread",
    "risotto|moussaka|lentil soup|cheesecake|dumplings|ratatouille|meatballs|waffles",
)
ARTISTS = _texts(
    "Mozart|Adele|Queen|Drake|Bach|Prince|Shakira|Coldplay|Miles Davis|Elvis|Sting|Bjork|Vivaldi|Rihanna|Nina Simone|Radiohead|Abba|Metallica|Beyonce|Johnny Cash",
    "Madonna|Chopin|Nirvana|Bob Dylan|Pink Floyd|Ella Fitzgerald|Daft Punk|Beethoven",
)
TASKS = _texts(
    "buy milk|call the bank|water the plants|pay the rent|send the report|book a dentist|clean the car|renew the passport|feed the cat|order ink|fix the bike|wash the windows|pick up the parcel|back up the laptop|charge the phone|sign the contract",
    "return the books|mow the lawn|update the website|bake a cake|print the tickets|empty the bins|check the oil|write to the landlord",
)
WORDS = _texts(
    "house|river|bread|teacher|window|friend|morning|garden|letter|mountain|kitchen|winter|bridge|dream|silver|forest|engine|island|summer|doctor",
    "candle|harbour|painter|shadow|thunder|pillow|journey|blanket",
)
COMPANIES = _texts(
    "Apple|Siemens|Toyota|Nestle|Intel|Boeing|Adidas|Nokia|Shell|Pfizer|Netflix|Airbus|Sony|Volvo|Bayer|Oracle|Danone|Philips",
    "Tesla|Samsung|Unilever|Honda|Roche|Spotify|Lego|Ikea",
)
CURRENCIES = "USD|EUR|GBP|JPY|CHF|CAD|AUD|SEK"
LANGUAGES = "French|German|Spanish|Italian|Polish|Dutch|Greek|Turkish"

SKILLS = [
    Skill("get_weather", "Get the weather forecast of a city on a day.", {"city": CITIES, "date": _dates()},
        ["What is the weather in {city} on {date}?", "Will it rain in {city} on {date}?", "Weather for {city}, {date}.", "How warm will {city} be on {date}?", "Is it sunny in {city} on {date}?"],
        ["Do I need an umbrella in {city} on {date}?", "Tell me the forecast of {date} for {city}."]),
    Skill("set_timer", "Start a countdown.", {"minutes": _numbers(1, 240)},
        ["Set a timer for {minutes} minutes.", "Wake me in {minutes} minutes.", "Start a {minutes} minute timer.", "Remind me in {minutes} minutes.", "Timer, {minutes} minutes."],
        ["Give me {minutes} minutes on the clock.", "Please count down {minutes} minutes."]),
    Skill("play_music", "Play music by an artist.", {"artist": ARTISTS, "volume": _numbers(5, 101, 5)},
        ["Play songs by {artist} at volume {volume}.", "I want to hear {artist} at volume {volume}.", "Put on {artist}, volume {volume}.", "Play {artist} with the volume at {volume}."],
        ["Let me listen to {artist}, loudness {volume}.", "Start a {artist} playlist and set the sound to {volume}."]),
    Skill("convert_currency", "Convert an amount of money.", {"amount": _numbers(10, 900), "source": _choices(CURRENCIES, CURRENCIES), "target": _choices(CURRENCIES, CURRENCIES)},
        ["Convert {amount} {source} to {target}.", "How much is {amount} {source} in {target}?", "Change {amount} {source} into {target}.", "{amount} {source} to {target}, please."],
        ["What do I get in {target} for {amount} {source}?", "Express {amount} {source} in {target}."]),
    Skill("translate", "Translate a text.", {"text": WORDS, "language": _choices(LANGUAGES, LANGUAGES)},
        ["Translate {text} to {language}.", "How do you say {text} in {language}?", "What is {text} in {language}?", "Give me the {language} translation of {text}."],
        ["I need the {language} expression for {text}.", "Put {text} into {language}."]),
    Skill("book_table", "Reserve a table in a restaurant.", {"city": CITIES, "people": _numbers(1, 13), "time": _times()},
        ["Book a table for {people} in {city} at {time}.", "Reserve a table in {city} for {people} people at {time}.", "I need a table for {people} at {time} in {city}.", "Table for {people}, {city}, {time}."],
        ["Get {people} of us a dinner table in {city} around {time}.", "At {time} we want to eat in {city}, {people} persons."]),
    Skill("send_email", "Send an email.", {"to": PEOPLE, "subject": TASKS},
        ["Send an email to {to} with the subject {subject}.", "Email {to} about: {subject}.", "Write {to} an email titled {subject}.", "Send {to} a mail, subject {subject}."],
        ["Mail {to}, the subject line is {subject}.", "Drop {to} an email called {subject}."]),
    Skill("create_event", "Add an event to the calendar.", {"title": TASKS, "date": _dates(), "time": _times()},
        ["Add {title} to my calendar on {date} at {time}.", "Create an event {title} on {date} at {time}.", "Schedule {title} for {date}, {time}.", "Put {title} in the calendar: {date}, {time}."],
        ["Block {date} {time} for: {title}.", "I want to {title} on {date} at {time}, note it in my calendar."]),
    Skill("find_recipe", "Find a recipe.", {"dish": DISHES, "servings": _numbers(1, 25)},
        ["Find a recipe for {dish} for {servings} people.", "How do I cook {dish} for {servings}?", "I want to make {dish}, {servings} servings.", "Recipe for {dish}, {servings} portions."],
        ["Show me how to prepare {dish} that feeds {servings}.", "Cooking {dish} for {servings} guests, what do I need?"]),
    Skill("get_stock_price", "Get the share price of a company on a day.", {"company": COMPANIES, "date": _dates()},
        ["What was the share price of {company} on {date}?", "Stock price of {company} on {date}.", "How much was {company} stock on {date}?", "Price of {company} shares on {date}?"],
        ["Where did {company} close on {date}?", "Look up the quote of {company} for {date}."]),
    Skill("set_thermostat", "Set the temperature of a room.", {"room": _choices("kitchen|bedroom|bathroom|office|living room|hall", "kitchen|bedroom|bathroom|office|living room|hall"), "celsius": _amounts(14, 26)},
        ["Set the {room} to {celsius} degrees.", "Heat the {room} to {celsius} degrees.", "Make the {room} {celsius} degrees.", "Thermostat of the {room}: {celsius} degrees."],
        ["I want {celsius} degrees in the {room}.", "Bring the {room} up to {celsius} degrees."]),
    Skill("switch_light", "Turn a light on or off.", {"room": _choices("kitchen|bedroom|bathroom|office|living room|hall|garage|garden", "kitchen|bedroom|bathroom|office|living room|hall|garage|garden"), "state": _choices("on|off", "on|off"), "brightness": _numbers(5, 101, 5)},
        ["Turn {state} the light in the {room}, brightness {brightness}.", "Switch the {room} light {state} at brightness {brightness}.", "Light {state} in the {room}, {brightness} percent."],
        ["The {room} lamp should be {state} with {brightness} percent.", "Set the {room} lamp to {state}, level {brightness}."]),
    Skill("add_todo", "Add a task to the list.", {"task": TASKS, "priority": _choices("low|medium|high", "low|medium|high")},
        ["Add {task} to my list with {priority} priority.", "Put {task} on the list, priority {priority}.", "New task: {task}, {priority} priority.", "I have to {task}, priority {priority}.", "To do: {task} ({priority})."],
        ["Do not let me forget to {task}, it has {priority} priority.", "Note the task {task} as {priority}."]),
    Skill("search_flights", "Search flights between two cities.", {"origin": CITIES, "destination": CITIES, "date": _dates()},
        ["Find flights from {origin} to {destination} on {date}.", "Fly from {origin} to {destination} on {date}.", "Flights {origin} to {destination}, {date}.", "I need a flight to {destination} from {origin} on {date}."],
        ["On {date} I want to travel by plane from {origin} to {destination}.", "Which planes leave {origin} for {destination} on {date}?"]),
    Skill("calculate_tip", "Compute the tip for a bill.", {"bill": _amounts(8, 150), "percent": _numbers(5, 31)},
        ["What is a {percent} percent tip on {bill}?", "Tip of {percent} percent for a bill of {bill}.", "Calculate {percent} percent tip on {bill}.", "The bill is {bill}, I tip {percent} percent."],
        ["How much do I leave at {percent} percent when we pay {bill}?", "We owe {bill}; add a {percent} percent tip."]),
    Skill("call_contact", "Call a person.", {"name": PEOPLE, "video": Slot({"type": "boolean"}, [True, False], [True, False])},
        ["Call {name}, video {video}.", "Phone {name} with video {video}.", "Start a call to {name}, video: {video}.", "Ring {name}, video {video}.", "Please call {name} now, video {video}."],
        ["Connect me to {name}, camera {video}.", "Dial {name}; use video: {video}."]),
    Skill("track_parcel", "Find a parcel by its number.", {"number": _numbers(100000, 999999, 1237), "carrier": _choices("DHL|UPS|FedEx|DPD", "DHL|UPS|FedEx|DPD")},
        ["Where is my {carrier} parcel {number}?", "Track {carrier} parcel {number}.", "Status of parcel {number} with {carrier}.", "Find parcel {number}, carrier {carrier}."],
        ["Has {number} from {carrier} arrived yet?", "Locate the {carrier} shipment {number}."]),
    Skill("split_bill", "Divide a sum among people.", {"total": _numbers(20, 600), "names": Slot({"type": "array", "items": {"type": "string"}}, [], [])},
        ["Split {total} between {names}.", "Divide {total} among {names}.", "Share a bill of {total} between {names}.", "{names} pay {total} together, split it."],
        ["How much does each of {names} pay of {total}?", "{names} want to share {total} equally."]),
    Skill("define_term", "Look up the definition of a term.", {"term": WORDS, "length": _choices("short|long", "short|long")},
        ["Give me a {length} definition of {term}.", "Define {term}, {length} version.", "What does {term} mean? Make it {length}.", "{length} explanation of {term}.", "Look up {term} and keep it {length}.", "Dictionary: {term}, {length}."],
        ["Explain the meaning of {term} in a {length} form.", "I do not know {term}; a {length} entry, please."]),
    Skill("rate_movie", "Store a rating.", {"title": _texts("Casablanca|Titanic|Alien|Amelie|Rocky|Psycho|Gladiator|Up|Vertigo|Heat|Fargo|Memento|Jaws|Parasite|Frozen|Dune", "Inception|Metropolis|Goodfellas|Arrival|Ratatouille|Stalker|Network|Platoon"), "stars": _numbers(1, 11)},
        ["Rate {title} with {stars} stars.", "Give {title} {stars} stars.", "I rate {title} {stars}.", "{title} gets {stars} stars from me."],
        ["My score for {title} is {stars}.", "Save {stars} stars as my opinion of {title}."]),
]  # fmt: skip


def _draw_value(slot: Slot, draw: Random, *, held_out: bool) -> Any:
    if slot.schema["type"] == "array":
        people = PEOPLE.test if held_out else PEOPLE.train
        return draw.sample(people, draw.choice((2, 3)))
    return draw.choice(slot.test if held_out else slot.train)


def _spell(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return f"{', '.join(value[:-1])} and {value[-1]}"
    return str(value)


def _make_prompt(skill: Skill, draw: Random, *, held_out: bool) -> tuple[str, dict[str, Any]]:
    while True:
        values = {name: _draw_value(slot, draw, held_out=held_out) for name, slot in skill.slots.items()}
        pairs = [("source", "target"), ("origin", "destination")]
        if all(values.get(one, 1) != values.get(other, 2) for one, other in pairs):
            break
    template = draw.choice(skill.test if held_out else skill.train)
    return template.format(**{name: _spell(value) for name, value in values.items()}), values


def make_examples(skills: list[Skill], count: int, seed: int, *, held_out: bool) -> Iterator[Example]:
    """Yield `count` single-turn examples for each skill, without repeated prompts, in the order 1st, 2nd, … of all."""
    draws = {skill.name: Random(f"{seed}/{skill.name}/{held_out}") for skill in skills}
    seen: set[str] = set()
    for _ in range(count):
        for skill in skills:
            draw = draws[skill.name]
            for _ in range(1000):
                prompt, values = _make_prompt(skill, draw, held_out=held_out)
                if prompt not in seen:
                    break
            seen.add(prompt)
            others = draw.sample([one for one in skills if one is not skill], min(OFFERED, len(skills)) - 1)
            offered = [skill, *others]
            draw.shuffle(offered)
            call = ToolCall("call_1", skill.name, values)
            messages = [Message("user", (Text(prompt),)), Message("assistant", (call,))]
            yield make_example(messages, [one.tool for one in offered])

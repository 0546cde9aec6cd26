"""Prompts for the local model, with the offered tools and the expected call, if any.

Every other prompt, from the first on, was used to find the threshold in `toolwire.local.plan`.
"""

from typing import NamedTuple

STRING = {"type": "string"}
NUMBER = {"type": "number"}
CURRENCY = {"type": "string", "enum": ["USD", "EUR", "GBP", "JPY"]}


def takes(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)}


TOOLS = {
    "get_weather": ("Get the current weather of a city.", takes(city=STRING)),
    "send_email": ("Send an email to a person.", takes(to=STRING, subject=STRING, body=STRING)),
    "add": ("Add two numbers.", takes(a=NUMBER, b=NUMBER)),
    "set_alarm": ("Set an alarm at a time of day.", takes(time={"type": "string", "description": "such as 07:30"})),
    "convert_currency": (
        "Convert an amount of money from one currency to another.",
        takes(amount=NUMBER, source=CURRENCY, target=CURRENCY),
    ),
    "search_flights": (
        "Search for flights between two cities on a date.",
        takes(origin=STRING, destination=STRING, date=STRING),
    ),
    "play_music": ("Play a song or an artist.", takes(query=STRING)),
    "get_stock_price": (
        "Get the latest price of a stock.",
        takes(symbol={"type": "string", "description": "ticker symbol"}),
    ),
}


class Prompt(NamedTuple):
    text: str
    tools: tuple[str, ...]
    function: str | None = None
    arguments: dict[str, object] | None = None


PROMPTS = (
    Prompt("What is the weather in Paris?", ("get_weather",), "get_weather", {"city": "Paris"}),
    Prompt("What is the weather like in Madrid today?", ("get_weather",), "get_weather", {"city": "Madrid"}),
    Prompt("How warm is it in Oslo right now?", ("get_weather",), "get_weather", {"city": "Oslo"}),
    Prompt("Tell me the weather in Cairo.", ("get_weather", "set_alarm"), "get_weather", {"city": "Cairo"}),
    Prompt("Is it raining in Tokyo?", ("get_weather", "add"), "get_weather", {"city": "Tokyo"}),
    Prompt("Do I need an umbrella in Seattle?", ("get_weather", "play_music"), "get_weather", {"city": "Seattle"}),
    Prompt("What is 17 plus 25?", ("add",), "add", {"a": 17, "b": 25}),
    Prompt("What is 8 plus 13?", ("add",), "add", {"a": 8, "b": 13}),
    Prompt("Add 3.5 and 9.", ("add", "get_weather"), "add", {"a": 3.5, "b": 9}),
    Prompt("Sum up 250 and 75.", ("add", "search_flights"), "add", {"a": 250, "b": 75}),
    Prompt("Calculate the sum of 1200 and 345.", ("send_email", "add"), "add", {"a": 1200, "b": 345}),
    Prompt("How much is 2.5 and 4.5 together?", ("add", "get_stock_price"), "add", {"a": 2.5, "b": 4.5}),
    Prompt("Wake me up at 6:45.", ("set_alarm",), "set_alarm", {"time": "6:45"}),
    Prompt("Set an alarm for 07:15.", ("set_alarm",), "set_alarm", {"time": "07:15"}),
    Prompt("Set an alarm for 22:00.", ("set_alarm", "play_music"), "set_alarm", {"time": "22:00"}),
    Prompt("I have to get up at 05:30, wake me.", ("set_alarm", "get_weather"), "set_alarm", {"time": "05:30"}),
    Prompt(
        "Convert 100 USD to EUR.",
        ("convert_currency",),
        "convert_currency",
        {"amount": 100, "source": "USD", "target": "EUR"},
    ),
    Prompt(
        "Convert 20 EUR to JPY.",
        ("convert_currency",),
        "convert_currency",
        {"amount": 20, "source": "EUR", "target": "JPY"},
    ),
    Prompt(
        "How many yen are 50 pounds?",
        ("convert_currency", "add"),
        "convert_currency",
        {"amount": 50, "source": "GBP", "target": "JPY"},
    ),
    Prompt(
        "Exchange 75 GBP into USD.",
        ("convert_currency", "send_email"),
        "convert_currency",
        {"amount": 75, "source": "GBP", "target": "USD"},
    ),
    Prompt(
        "Find a flight from Berlin to Madrid on 2026-12-01.",
        ("search_flights",),
        "search_flights",
        {"origin": "Berlin", "destination": "Madrid", "date": "2026-12-01"},
    ),
    Prompt(
        "Search flights from Vienna to Athens on 2027-04-02.",
        ("search_flights",),
        "search_flights",
        {"origin": "Vienna", "destination": "Athens", "date": "2027-04-02"},
    ),
    Prompt("Play some Mozart.", ("play_music",), "play_music", {"query": "Mozart"}),
    Prompt("Play Bohemian Rhapsody.", ("play_music",), "play_music", {"query": "Bohemian Rhapsody"}),
    Prompt("What does AAPL stock cost?", ("get_stock_price",), "get_stock_price", {"symbol": "AAPL"}),
    Prompt("Get the price of TSLA.", ("get_stock_price",), "get_stock_price", {"symbol": "TSLA"}),
    Prompt(
        "Give me the latest price of MSFT.",
        ("get_stock_price", "convert_currency"),
        "get_stock_price",
        {"symbol": "MSFT"},
    ),
    Prompt("What is the NVDA stock at?", ("get_stock_price", "play_music"), "get_stock_price", {"symbol": "NVDA"}),
    Prompt("Hello!", ("get_weather",)),
    Prompt("Good morning!", ("get_weather",)),
    Prompt("Tell me a joke.", ("get_weather",)),
    Prompt("Who painted the Mona Lisa?", ("get_weather", "set_alarm")),
    Prompt("Who wrote Hamlet?", ("get_weather", "add")),
    Prompt("What is a prime number?", ("get_weather", "play_music")),
    Prompt("What is the capital of France?", ("send_email", "get_weather")),
    Prompt("Tell me a story about a dragon.", ("add",)),
    Prompt("Thank you, that was helpful.", ("get_weather", "send_email", "set_alarm")),
    Prompt("How do I boil an egg?", ("add", "search_flights")),
    Prompt("What does the word 'ubiquitous' mean?", ("add",)),
    Prompt("What is the largest ocean?", ("add", "get_stock_price")),
    Prompt("Write a short poem about the sea.", ("add", "get_weather")),
    Prompt("Write a haiku about autumn.", ("set_alarm",)),
    Prompt("Explain photosynthesis in one sentence.", ("send_email", "add")),
    Prompt("What is the opposite of cold?", ("set_alarm", "get_weather")),
    Prompt("How are you today?", ("set_alarm",)),
    Prompt("Who was Albert Einstein?", ("convert_currency",)),
    Prompt("Name three fruits.", ("set_alarm", "play_music")),
    Prompt("Can you help me with my homework?", ("convert_currency", "send_email")),
    Prompt("Why is the sky blue?", ("convert_currency",)),
    Prompt("Explain gravity to a child.", ("search_flights",)),
    Prompt("What is your name?", ("convert_currency", "add")),
    Prompt("Is the earth round?", ("play_music",)),
    Prompt("Translate 'good morning' into Spanish.", ("search_flights",)),
    Prompt("You are very kind.", ("get_stock_price",)),
    Prompt("Give me advice on learning to cook.", ("search_flights", "get_weather")),
    Prompt("What colour is grass?", ("get_stock_price", "play_music")),
)

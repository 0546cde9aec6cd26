"""Prompts that obviously ask for the one tool that is offered, and prompts of a plain chat, for the local model.

`FIRST` was used to find an earlier rule for the decision to call; `SECOND` was written before anything was measured on it.
"""

from typing import NamedTuple

STRING = {"type": "string"}
NUMBER = {"type": "number"}
COUNT = {"type": "integer"}


class PromptSet(NamedTuple):
    tools: dict[str, tuple[str, dict[str, object]]]
    calls: dict[str, tuple[str, ...]]
    plain: tuple[str, ...]


def takes(required, **properties):
    return {"type": "object", "properties": properties, "required": required}


FIRST = PromptSet(
    {
        "weather": ("Get the forecast for a city.", takes(["city"], city=STRING, days={**COUNT, "default": 1})),
        "multiply": ("Multiply two numbers.", takes(["a", "b"], a=NUMBER, b=NUMBER)),
        "current_time": ("Get the current time in a city.", takes(["city"], city=STRING)),
        "send_message": ("Send a text message to a person.", takes(["to", "text"], to=STRING, text=STRING)),
        "search_books": ("Search the library for books.", takes(["query"], query=STRING, limit=COUNT)),
    },
    {
        "weather": (
            "What is the weather in Paris?",
            "What is the weather in Oslo?",
            "What's the forecast for Berlin?",
            "Will it rain in London tomorrow?",
            "Get the forecast for Rome.",
            "weather in Madrid",
            "Show me the weather forecast for Tokyo for 3 days.",
            "How is the weather in Lima?",
            "Tell me the weather in New York.",
            "Forecast for Vienna, please.",
        ),
        "multiply": (
            "What is 6 times 7?",
            "Multiply 12 by 9.",
            "What is 3 multiplied by 14?",
            "Please multiply 2.5 and 8.",
            "What do you get if you multiply 11 and 13?",
            "Calculate 15 times 4.",
            "What is the product of 21 and 3?",
            "multiply 100 and 5",
            "How much is 7 * 8?",
            "I want to multiply the numbers 19 and 2.",
        ),
        "current_time": (
            "What time is it in Sydney?",
            "What is the current time in Tokyo?",
            "Get the current time in Paris.",
            "Tell me the time in Chicago.",
            "time in Moscow",
            "What's the time in Cairo right now?",
            "Current time in Delhi, please.",
            "Do you know what time it is in Lisbon?",
            "Show me the time in Toronto.",
            "How late is it in Dublin?",
        ),
        "send_message": (
            "Send a message to Ann: I am late.",
            "Send Tom the message 'Happy birthday'.",
            "Text Maria that dinner is ready.",
            "Message Bob: call me back.",
            "Please send a text message to Lisa saying hello.",
            "Send a message to my boss: I am ill today.",
            "Write a message to Eve: see you at noon.",
            "Tell Paul by message that the train is late.",
            "Send 'Good luck!' to Nina.",
            "Can you send a message to John?",
        ),
        "search_books": (
            "Search for books about whales.",
            "Find books by Jane Austen.",
            "Search the library for books on Python.",
            "Are there any books about the moon in the library?",
            "Find me a book about cooking.",
            "search books history of Rome",
            "Look for books by Tolstoy.",
            "Which books about gardens does the library have?",
            "Search books about dinosaurs for children.",
            "I am looking for a book about chess.",
        ),
    },
    (
        "Hello!",
        "How are you today?",
        "Thank you!",
        "Who are you?",
        "Tell me a joke.",
        "What is the capital of Spain?",
        "Why is the sky blue?",
        "Write a short poem about love.",
        "Who wrote Romeo and Juliet?",
        "Explain gravity in one sentence.",
        "What is a prime number?",
        "Good night.",
        "Name three animals.",
        "What is your favourite colour?",
        "How do I make tea?",
        "That is great, thanks.",
        "What does 'happy' mean?",
        "Can you help me?",
        "Tell me about dogs.",
        "Is the earth round?",
    ),
)

SECOND = PromptSet(
    {
        "translate": (
            "Translate a text into another language.",
            takes(["text", "language"], text=STRING, language=STRING),
        ),
        "divide": ("Divide one number by another.", takes(["dividend", "divisor"], dividend=NUMBER, divisor=NUMBER)),
        "get_population": ("Get the population of a country.", takes(["country"], country=STRING, year=COUNT)),
        "add_task": ("Add a task to the to-do list.", takes(["task"], task=STRING, priority={"enum": ["low", "high"]})),
        "find_recipe": ("Find a recipe for a dish.", takes(["dish"], dish=STRING, servings=COUNT)),
    },
    {
        "translate": (
            "Translate 'good morning' into French.",
            "How do you say 'thank you' in Italian?",
            "Please translate this into German: I am hungry.",
            "Translate hello to Spanish.",
            "What is the translation of 'house' into Polish?",
            "Can you translate 'see you tomorrow' into Dutch?",
            "I need 'water' translated into Japanese.",
            "translate cat into Swedish",
            "Say 'happy new year' in Portuguese.",
            "Turn this sentence into English: Je suis fatigué.",
        ),
        "divide": (
            "What is 84 divided by 7?",
            "Divide 100 by 8.",
            "How much is 45 / 9?",
            "Please divide 9.6 by 3.",
            "What do I get if I split 120 by 5?",
            "divide 63 by 21",
            "Calculate 1000 divided by 40.",
            "What is the quotient of 56 and 8?",
            "How often does 6 go into 72?",
            "I want to divide 35 by 2.",
        ),
        "get_population": (
            "What is the population of Norway?",
            "How many people live in Brazil?",
            "Get the population of Japan.",
            "Population of Kenya, please.",
            "Tell me the population of Canada in 1990.",
            "How large is the population of Peru?",
            "population India",
            "How populous is Egypt?",
            "How many inhabitants does Chile have?",
            "Show me the population of Vietnam.",
        ),
        "add_task": (
            "Add 'buy milk' to my to-do list.",
            "Add a task: call the dentist.",
            "Put 'water the plants' on my list of tasks.",
            "New task: pay the rent.",
            "Please add washing the car to the to-do list.",
            "Remind me to feed the cat.",
            "Add a high priority task to finish the report.",
            "I have to do the laundry, add it to my list.",
            "task: send the invoice",
            "Note down that I must book a hotel.",
        ),
        "find_recipe": (
            "Find a recipe for lasagne.",
            "Do you have a recipe for apple pie?",
            "How can I cook paella? Find a recipe.",
            "I need a recipe for pancakes for 4 people.",
            "Recipe for tomato soup, please.",
            "Search for a dish: Wiener Schnitzel.",
            "Give me the recipe of guacamole.",
            "recipe goulash",
            "What is a good recipe for chocolate cake?",
            "Find me something to cook with rice.",
        ),
    },
    (
        "Hi there!",
        "How is it going?",
        "Thanks a lot!",
        "What can you do?",
        "Tell me something funny.",
        "Who discovered America?",
        "What is the meaning of life?",
        "Write a limerick.",
        "Why do cats purr?",
        "What is the tallest mountain on Earth?",
        "Goodbye!",
        "I feel sad today.",
        "Describe the ocean.",
        "What is your opinion of modern art?",
        "How do airplanes fly?",
        "You are wrong.",
        "Sing me a song.",
        "What is the difference between a frog and a toad?",
        "When did the Second World War end?",
        "Do you like chess?",
    ),
)

"""Tens of thousands of different prompts: templates of all categories filled with words, passages and code,
and beginnings that the model itself completes. `conversation(rng, words)` returns a category and turns."""

FIRST = "Liam Olivia Noah Emma Mateo Mia Lucas Sofia Yusuf Amina Chen Wei Hiro Yuki Priya Arjun Fatima Omar Ingrid Lars Anya Ivan Kofi Ama Zara Theo Nina Hugo Iris Felix Clara Oscar Stella Marco Elena Rosa Diego Tara Finn Maeve".split()
PLACES = "village|castle|forest|city|desert|small island|mountain hut|spaceship|school|library|hospital|farm|market|harbour|museum|bakery|garage|theatre|garden|lighthouse|submarine|train|circus|palace|cave|swamp|treehouse|hotel|bookshop|factory".split("|")
PEOPLE = "baker|teacher|nurse|farmer|pirate|knight|detective|inventor|musician|sailor|painter|princess|grandmother|pilot|gardener|doctor|scientist|carpenter|mayor|ghost|wizard|robot|student|firefighter|fisherman|librarian|cook|king|tailor|astronaut".split("|")
ANIMALS = "fox|owl|rabbit|bear|wolf|mouse|cat|dog|horse|dragon|turtle|crow|whale|bee|hedgehog|elephant|lion|frog|goat|parrot|squirrel|penguin|deer|otter|spider|ant|crocodile|swan|donkey|butterfly".split("|")
LANGS = "Python|Python|Python|JavaScript|JavaScript|Java|C|C++|Go|Rust|TypeScript|Ruby|PHP|Bash|SQL|HTML|CSS|C#|Kotlin|Swift|R|Lua".split("|")
TONGUES = "French|Spanish|German|Italian|Portuguese|Dutch|Latin|Swedish".split("|")
THINGS = "list|string|number|dictionary|file|matrix|array|date|set|tree|queue|stack|sentence|graph|table|text file|JSON object|password|URL|linked list|list of numbers|list of names|list of words|pair of numbers|sorted list|email address|binary string".split("|")
DOES = "reverses a|sorts a|prints a|copies a|checks a|splits a|merges two of a|counts the elements of a|finds the largest item in a|finds the smallest item in a|removes duplicates from a|validates a|rotates a|searches in a|filters a|converts a|compares two of a|parses a|generates a random|flattens a nested|computes the sum of a|computes the average of a|shuffles a|formats a|encodes a|saves a|loads a|hashes a|transposes a|iterates over a".split("|")
ALGOS = "binary search|bubble sort|quicksort|merge sort|Fibonacci numbers|prime numbers|a factorial|a greatest common divisor|a palindrome check|a guessing game|a calculator|a to-do list|a bank account|a temperature converter|FizzBuzz|a tic-tac-toe board|a word counter|a Caesar cipher|a stopwatch|a shopping cart|an anagram check|a leap year check|a dice roll|a linked list|a stack|a queue|a binary tree|breadth-first search|depth-first search|a web request|a unit test|a login form|a contact list|a countdown timer|a chat bot|a parser|a matrix product|a random password|roman numerals|a vending machine|a parking lot|a student record|a menu|an inventory|a date difference".split("|")
FOLLOW = "Tell me more.|Why?|Can you give me an example?|Make it shorter.|Make it longer.|Thanks! Anything else?|Explain that in simpler words.|Can you say that differently?|What is the most important point?|Write it as a list.|Continue.|Are you sure?|Summarize what you said.|And what are the drawbacks?|How would I explain this to a child?|Give me three more.|Now write a poem about it.|Thank you.|Could you rewrite that more formally?|What should I do next?|How does that work exactly?|Who invented it?|Is there an easier way?|Translate your answer to French.|What are common mistakes?".split("|")
CHAT = ["Hi!", "Hello there", "Good evening!", "How was your day?", "Can I ask you something?", "I need some advice about {n}.", "I'm feeling {a} today.",
        "What do you think about {n}?", "Do you like {n}?", "Have you ever heard of {N}?", "I just bought a {c}.", "My {p} is a bit {a}. Any ideas?", "Let's talk about {n}.",
        "I want to learn about {n}. Where do I start?", "Who are you?", "What can you help me with?", "Tell me a joke about a {c}.", "Tell me a fun fact about {n}.",
        "I can't sleep. Can you tell me something {a}?", "My name is {f}. Nice to meet you!", "What's your favourite {c}?", "I have a problem with my {c}.", "Should I {v} or not?",
        "How do I {v} a {c}?", "I'm bored.", "It's raining and I'm stuck in a {pl}.", "I had an argument with my friend {f} about {n}.", "What would you do with a {a} {c}?",
        "I'm planning a trip to {N}. Any tips?", "Recommend me something to read about {n}.", "My {c} broke. What now?", "I'm a {p} and I want to {v} better.", "Bye!", "You are {a}.", "Why are people so {a}?"]
EXPLAIN = ["What is {n}?", "Explain {n} in simple terms.", "How does {n} work?", "Tell me about {n}.", "Why is {n} important?", "Describe {n} briefly.", "What does the word \"{n}\" mean?",
           "Give me an introduction to {n}.", "What is the difference between {n} and {n2}?", "Compare {n} with {n2}.", "What is the history of {n}?", "Explain {n} to a child.", "Who was {N}?",
           "What do you know about {N}?", "Why do people {v}?", "What happens when you {v} a {c}?", "How is {n} related to {n2}?", "What are the advantages and disadvantages of {n}?", "What causes {n}?",
           "Where can I find {n}?", "In two sentences, what is {n}?", "How would you define {n}?", "What role does {n} play in everyday life?", "Is {n} the same as {n2}? Explain.", "What makes a {c} {a}?",
           "Write a paragraph about {n}.", "Give a detailed explanation of {n}.", "What are the main types of {n}?", "How did {n} change over time?", "Why would someone be {a}?"]
LIST = ["List {k} facts about {n}.", "Give me {k} tips for {n}.", "Name {k} things related to {n}.", "What are {k} common questions about {n}?", "Write a bulleted list of {k} ideas about {n}.",
        "Give me {k} examples of {n}.", "List {k} words that rhyme with {c}.", "List {k} synonyms of {a}.", "Name {k} kinds of {c}.", "What are {k} ways to {v}?", "Give me {k} reasons to {v}.",
        "List {k} things you find in a {pl}.", "Make a numbered list of steps to {v} a {c}.", "Suggest {k} names for a {c}.", "Give me {k} short sentences with the word \"{v}\".", "List the parts of a {c}.",
        "What do I need for {n}? Make a checklist.", "Write {k} quiz questions about {n}, with answers.", "Give me {k} titles for an article about {n}.", "List {k} differences between {n} and {n2}.",
        "Make a table with two columns about {n} and {n2}.", "Give me {k} things a {p} does every day.", "Name {k} {a} things."]
STORY = ["Write a short story about {f} and a {a} {an}.", "Tell me a bedtime story about a {an} in a {pl}.", "Write a tale about a {p} who finds a {c}.", "Write a story in which a {an} meets a {p}.",
         "Tell a story about {n}.", "Write the first paragraph of a novel about a {a} {p}.", "Write a funny story about a {an} that wants to {v}.", "Write a fable about a {an} and a {an2}.",
         "Write a dialogue between a {p} and a {an} about {n}.", "Write a story that ends with the words \"and the {c} was {a}\".", "Tell me a scary story set in a {pl}.", "Write about a day when {f} lost a {c}.",
         "Continue this story: {f} opened the door of the {pl} and saw a {a} {c}.", "Write a science fiction story about {n}.", "Write a letter from a {an} to a {p}.", "Write a story about two friends, {f} and {f2}, who {v} together.",
         "Invent a myth about {n}.", "Describe a {a} {pl} at night.", "Write a mystery about a missing {c}.", "Write a story of exactly three sentences about a {a} {an}."]
CODE = ["Write a {l} function that {d} {t}.", "Write a {l} program for {g}.", "Show me {l} code that {d} {t}.", "How do I implement {g} in {l}?", "Write a {l} class for a {c}.", "Write a {l} example of {g} and explain it.",
        "Write a {l} function named {v}_{c} that takes a {t} and returns a {t2}.", "What does this Python code do?\n\n{F}", "Explain this function:\n\n{F}", "Write a docstring for this function:\n\n{F}",
        "Add comments to this code:\n\n{F}", "Rewrite this code to be simpler:\n\n{F}", "Write a unit test for this function:\n\n{F}", "Write a Python function called {fn}. {fd}", "What is the difference between a {t} and a {t2} in {l}?",
        "Write a SQL query that selects every {c} whose {c2} is {a}.", "Write an HTML page about {n}.", "Write a regular expression that matches a {t}.", "Give me a {l} snippet that reads a {t} and prints it.",
        "Write a JSON document that describes a {c} with {k} fields.", "How do I loop over a {t} in {l}?", "Write a bash script that renames every {c} file.", "Fix the bug in my {l} program for {g}. It returns the wrong result."]
WRITE = ["Write an email to {f} about {n}.", "Write a short essay about {n}.", "Write a poem about {n}.", "Write a haiku about a {a} {c}.", "Write the introduction of a blog post about {n}.", "Draft a letter to a {p} about a {c}.",
         "Write an advertisement for a {a} {c}.", "Write a speech about {n}.", "Write a product review of a {c}.", "Write a job description for a {p}.", "Write an invitation to a party in a {pl}.", "Write a recipe with {c} and {c2}.",
         "Write an apology to {f} for being {a}.", "Write a social media post about {n}.", "Write a song about a {an}.", "Write a diary entry of a {p}.", "Write a news article about a {a} {an} in {N}.", "Write a slogan for {n}.",
         "Write a complaint about a {a} {c}.", "Write a thank-you message to a {p}.", "Argue for and against {n}.", "Write a persuasive paragraph: everyone should {v}.", "Write a cover letter for a job as a {p}.", "Write a description of {N} for tourists.",
         "Write meeting notes about {n}.", "Write a birthday card for {f}, who likes {n}."]
PASSAGE = ["Summarize this text: {P}", "Summarize in one sentence: {P}", "Explain the following text in simple words: {P}", "Rewrite this more politely: {E}", "Rewrite this in your own words: {P}", "Correct the grammar: {E}",
           "Turn this into a question: {E}", "Make this longer: {E}", "Make this shorter: {P}", "What is the following text about? {P}", "Continue this text: {P}", "Continue: {E}", "Translate to {T}: {E}", "Find three keywords in this text: {P}",
           "Write a title for this text: {P}", "Is this sentence positive or negative? {E}", "Rewrite this as a headline: {E}", "Put this into the future tense: {E}", "Explain this quotation: {Q}", "What does this mean? {Q}", "Who might have said this, and why? {Q}",
           "Repeat this text exactly: {E}", "Repeat after me: {Q}", "List the main points of this text: {P}", "Answer with yes or no: is a {c} {a}?", "Define {w}. A dictionary says: {D}.", "Which word fits this definition: {D}?", "Use the word \"{c}\" in a sentence like this one: {E}",
           "Copy the following sentence and change one word: {E}", "Write a question that this text answers: {P}", "Rewrite for a child: {P}", "Turn this text into a list: {P}"]


def arithmetic(rng):
    a, b, c = rng.randint(2, 99), rng.randint(2, 99), rng.randint(2, 20)
    name, other = rng.sample(FIRST, 2)
    thing = rng.choice("apples coins books marbles stamps cookies pencils tickets eggs stickers flowers cards".split())
    return rng.choice([
        f"What is {a} + {b}?", f"What is {a + b} - {b}?", f"Calculate {a} x {c}.", f"What is {a * c} divided by {c}?", f"Add {a}, {b} and {c}.", f"Count from {a} to {a + c}.",
        f"Count down from {a} to {max(0, a - c)}.", f"Count by {c} from {c} to {c * 10}.", f"What are the multiples of {c} below {c * 12}?", f"What is {c}0 percent of {a}0?", f"Solve: {c}x + {a} = {c * b + a}",
        f"Is {a * b} even or odd?", f"What is the square of {a}?", f"Round {a}.{b} to the nearest whole number.", f"{name} has {a} {thing} and gives {min(a, c)} to {other}. How many are left?",
        f"A box holds {c} {thing}. How many {thing} are in {b} boxes?", f"A car drives {a} kilometres per hour for {c} hours. How far does it go?", f"{name} buys {c} {thing} for {b} dollars each. What is the total?",
        f"A rectangle is {a} by {b}. What is its area?", f"What is the perimeter of a square with side {a}?", f"How many seconds are in {c} minutes?", f"What comes next: {c}, {2 * c}, {3 * c}, {4 * c}?",
        f"Write {a} in words.", f"Which is larger, {a} or {b}?", f"Sort these numbers: {', '.join(str(rng.randint(1, 99)) for _ in range(rng.randint(4, 9)))}", f"What is the average of {a}, {b} and {c}?",
        f"Convert {a} degrees Celsius to Fahrenheit.", f"What is {a}/{c} as a decimal?", f"Find the prime factors of {a * c}.", f"If today is day {c}, what day is it in {b} days?", f"{name} is {c} years old and {other} is {b} years older. How old is {other}?",
        f"Explain step by step: {a} times {b}.", f"List the first {c} odd numbers.", f"Write the multiplication table of {c}.", f"What is {a} minus {b} plus {c}?", f"Divide {a * b} {thing} among {b} people. How many does each get?"])


TEMPLATES = {"explain": EXPLAIN, "list": LIST, "story": STORY, "code": CODE, "write": WRITE, "chat": CHAT, "rewrite": PASSAGE}
WEIGHTS = {"explain": 13, "list": 11, "story": 10, "code": 13, "write": 12, "chat": 10, "rewrite": 14, "maths": 9, "invented": 8}
BEGIN = ["", "", "", "How", "What", "Why", "Can you", "Write", "Write a", "Explain", "I", "I want", "My", "Please", "Give me", "List", "Tell me", "Create", "Is", "Do", "Could you", "Describe", "Help me", "Which", "When", "Where", "Imagine", "Find",
         "Generate", "Translate", "Suggest", "Compare", "The", "In", "A", "You are", "Write a Python", "def", "Summarize", "If", "Let's", "Design", "Who", "Rewrite", "As a", "We", "There are", "Here is", "Think of", "Make", "For my", "Name"]


def fill(template, rng, words):
    """Fills the fields of a template; each letter names a kind of material."""
    source = rng.choice(words.functions)
    definition = rng.choice(words.definitions)
    fields = dict(
        n=rng.choice(words.nouns), n2=rng.choice(words.nouns), c=rng.choice(words.common_nouns), c2=rng.choice(words.common_nouns), v=rng.choice(words.verbs), a=rng.choice(words.adjectives),
        N=rng.choice(words.names), f=rng.choice(FIRST), f2=rng.choice(FIRST), p=rng.choice(PEOPLE), pl=rng.choice(PLACES), an=rng.choice(ANIMALS), an2=rng.choice(ANIMALS), k=rng.randint(3, 10),
        l=rng.choice(LANGS), d=rng.choice(DOES), t=rng.choice(THINGS), t2=rng.choice(THINGS), g=rng.choice(ALGOS), T=rng.choice(TONGUES), P=rng.choice(words.passages), E=rng.choice(words.examples),
        Q=rng.choice(words.quotes), w=definition[0], D=definition[1], F=source[2], fn=source[0], fd=source[1])
    return template.format(**fields)


def conversation(rng, words):
    """(category, turns); a turn is a text, or {"invent": beginning} for the model to complete."""
    category = rng.choices(list(WEIGHTS), WEIGHTS.values())[0]
    if category == "invented":
        first = {"invent": rng.choice(BEGIN)}
    elif category == "maths":
        first = arithmetic(rng)
    else:
        first = fill(rng.choice(TEMPLATES[category]), rng, words)
        if rng.random() < 0.12 and category not in ("code", "rewrite"):
            cut = first.split()[: rng.randint(2, 5)]
            first = {"invent": " ".join(cut)}
    turns = [first]
    while len(turns) < 4 and rng.random() < (0.45 if category == "chat" else 0.14):
        turns.append({"invent": rng.choice(["", "", "How", "What", "Can you", "Why", "I", "Now"])} if rng.random() < 0.5 else rng.choice(FOLLOW))
    return category, turns

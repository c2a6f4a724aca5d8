"""Requests in many forms about well-known topics (topics.py); the model itself completes a third of them.

A module that sees few forms learns their answers by heart: it agreed with the target 5 to 10 points more often on new words
in known forms than on requests in new forms. `conversation(rng, topics)` returns a category and turns.
"""

from .prompts import ALGOS, FIRST, FOLLOW, LANGS, TONGUES

EXPLAIN = """How does a {device} work?|How do {vehicle}s stay safe on the road or at sea?|Why do {animal}s behave the way they do?|What is {process} and where can I see it?|What does a {job} do all day?|Who was {person}, and what did they achieve?
What led to {event}?|What were the consequences of {event}?|Why is {science} useful?|What do people study in {science}?|What is the difference between {food} and {food}?|What is the difference between a {animal} and a {animal}?|How is {food} made?
Where does {food} come from originally?|What are the symptoms of {illness}, and how is it treated?|Can {illness} be prevented?|How does the {body} work?|What happens in the {body} when we feel {feeling}?|Why do humans feel {feeling}?|What is {country} known for?
What is the climate like in {country}?|How is the government of {country} organised?|What should everybody know about {city}?|How did {city} become so large?|How do {plant}s grow?|What do {animal}s eat in the wild?|How do {animal}s survive the winter?|How does a {instrument} produce sound?
What are the rules of {sport}?|How did {sport} begin?|What is {stuff} used for?|How do scientists measure {process}?|What is {stuff} made of?|Why does {process} matter for life on Earth?|How did people live before the {device} was invented?|Who invented the {device}, and when?
What does {idea} mean in a modern society?|How has the idea of {idea} changed over the centuries?|What are the arguments for and against {idea}?|What is the relationship between {science} and {science}?|I keep hearing about {process}. What is it?|My teacher mentioned {event} today. What was it about?
My daughter asked me why {animal}s exist. What should I tell her?|I'm writing a report on {science}. What are the key concepts?|Is it true that {animal}s can feel {feeling}?|Do {animal}s sleep?|What would happen if there were no {animal}s?|What would the world be like without {stuff}?
What is the scientific explanation for {process}?|How are {process} and {process} connected?|Why does {food} taste the way it does?|How do you tell good {food} from bad?|What role did {person} play in history?|What ideas is {person} remembered for?|How old is {star}, and how did it form?
How far has research on {illness} come?|Which part of the {body} is most easily injured?|How does a {job} become a {job}?|What skills does a {job} need?|How do {room}s get their electricity and water?|What is inside a {device}?|What is the point of {hobby}?|Why do people enjoy {hobby}?
How do {process} and weather affect {plant}s?|What does it mean when somebody talks about {idea}?|Explain {process}.|Explain the basics of {science}.|Explain {idea} with an everyday example.|Explain how to read a {thing} label.|Tell me how {event} ended.|Describe how {stuff} is produced.
Describe the life cycle of a {animal}.|Describe what happened during {event}.|Describe the work of {person}.|Give an overview of the history of {country}.|Give an overview of {sport}.|Outline how a {job} solves a typical problem.|Teach me something about {star}.""".replace("\n", "|").split("|")

LIST = """What are {k} things to see in {city}?|What are {k} good habits for people with {illness}?|Name {k} dishes made with {ingredient}.|Name {k} famous people from {country}.|List {k} uses of {stuff}.|List the main ingredients of {food}.|Give me {k} ideas for a party about {sport}.
What should I pack for a week in {country}?|What are {k} jobs that involve {science}?|Give {k} tips for learning the {instrument}.|Give {k} tips for keeping a {animal} healthy.|What are the steps to clean a {device}?|What are the steps to make {food} at home?|Which {k} books would you recommend to somebody who likes {science}?
What do I need to start with {hobby}?|List {k} advantages of {vehicle}s over {vehicle}s.|Suggest {k} names for a {animal}.|Suggest {k} names for a company that sells {food}.|Suggest {k} gifts for a {job}.|Suggest {k} weekend activities for a family that loves {animal}s.|Brainstorm {k} ideas for an app for {job}s.
Brainstorm {k} titles for a book about {person}.|Write a shopping list for {food} and {food}.|Write a to-do list for a {job} on a busy Monday.|Write a checklist for moving into a new {room}.|Plan a three-day trip to {city}.|Plan a weekly menu with a lot of {ingredient}.|Make a timeline of {event}.|Make a study plan for {science}.
Make a training plan for {sport}.|What are {k} myths about {animal}s?|What are {k} interesting facts about the {body}?|What are {k} questions I should ask a {job}?|What are {k} common mistakes in {sport}?|Rank {k} kinds of {food} from mild to strong.|Give me {k} riddles whose answer is a {thing}.|Give me {k} words that describe {feeling}.
Give me {k} reasons to visit {country} in spring.|Give me {k} alternatives to {stuff}.|List the pros and cons of working as a {job}.|List the pros and cons of owning a {vehicle}.|Compare {country} and {country} in a table.|Compare {sport} and {sport} in a short table.|How can I get over {feeling}? Give me {k} ideas.|Name the parts of a {device} and what they do.
Which {k} {plant}s are easy to grow on a balcony?|What are the most important events in the life of {person}?|What can a school do about {idea}? Give {k} suggestions.|Give {k} examples of {process} in everyday life.|Write {k} trivia questions about {country} with the answers.|Write {k} sentences that use the word {feeling}.""".replace("\n", "|").split("|")

STORY = """Write a story about a {job} who is afraid of {animal}s.|Tell me a story about a {animal} and a {animal} who become friends.|Write a story set in {city} during {event}.|Write a short tale in which a {thing} changes the life of a {job}.|Tell a story about two sisters who open a {room}.
Write a scene where a {job} and a {job} argue about {food}.|Write the beginning of an adventure that starts in a {room}.|Write a story about the last {animal} on Earth.|Write a story about a robot that learns {feeling}.|Tell me about a child who finds a {device} in the attic.|Invent a story about how the {animal} got its colours.
Write a ghost story about an old {vehicle}.|Write a love story between a {job} and a {job}.|Write a story in the style of a fairy tale about a {plant} that talks.|Write a detective story: somebody stole the {food}.|Write a story about a journey to {star}.|Imagine you are a {animal}. Tell me about your day.|Imagine {person} wakes up today. What happens?
Make up a story with a {job}, a {thing} and a surprise.|{f} had never seen a {animal} before. Continue the story.|It was the night before the big {sport} match, and {f} could not sleep. Go on.|The {vehicle} stopped in the middle of nowhere. What happens next?|"Don't touch the {thing}," said the {job}. Continue from here.
Write a bedtime story in which nobody is afraid of the dark, with a {animal}.|Write a story about a family that moves to {country}.|Write a humorous story about a {job}'s first day.|Write a story whose lesson is about {feeling}.|Write a monologue of a lonely {thing}.|Write a dialogue between the sun and a {plant}.|Write a short play about a {job} and a talking {animal}.
Tell the story of {event} from the view of a {job}.|Write a story with a sad ending about a {instrument} player.|Write an adventure of {f} and {f}, who build a {vehicle}.""".replace("\n", "|").split("|")

WRITE = """Write an email to my {job} asking for an appointment.|Write an email to a customer whose {device} arrived broken.|Write a letter to my landlord about the {thing} in the {room}.|Write a polite message to cancel a {sport} lesson.|Write a poem about {feeling} and {star}.|Write a poem about a {animal} in the rain.
Write a limerick about a {job} from {city}.|Write a haiku about {plant}s.|Write a song about leaving {city}.|Write an essay on the role of {science} in society.|Write an essay about {idea}.|Write a blog post about {hobby} for beginners.|Write a blog post about a week in {country}.|Write a recipe for {food} with {ingredient}.
Write a recipe that a child can cook, with {ingredient}.|Write a speech for the opening of a {room}.|Write a wedding speech for a {job} who loves {sport}.|Write a review of a restaurant that serves {food}.|Write a review of a film about {person}.|Write a product description for a {device}.|Write a product description for {clothes} made of {stuff}.
Write an advertisement for a holiday in {country}.|Write a job advertisement for a {job} in {city}.|Write a cover letter. I have worked as a {job} and would like to become a {job}.|Write a short biography of {person}.|Write a news report about a {animal} that escaped in {city}.|Write an encyclopedia entry about the {animal}.|Write a paragraph on why {idea} matters.
Write a diary entry from a sailor who reaches {country}.|Write a motivational message for somebody who suffers from {illness}.|Write instructions for using a {device}.|Write a conversation between a customer and a {job}.|Write a press release about a new {vehicle}.|Write a social media post about {food} day.|Write a toast to {feeling}.
Write a letter from {person} to a friend.|Write a text for a museum sign about {event}.|Write a scary description of a {room} at night.|Write a description of the perfect {room}.|Write a thank-you card to a {job} who helped my family.|Write a persuasive speech about {idea}.|Write the lyrics of a children's song about {food}.
Draft a proposal for a {science} project.|Draft an apology to my neighbour; my {animal} ate the {plant}s.|Draft a summary of what {person} is known for.|Compose a short prayer for {feeling}.|Help me write a dating profile. I like {hobby}, {food} and {animal}s.|Help me word a message to {f}: I can't come because of {illness}.""".replace("\n", "|").split("|")

CHAT = """Hey, how are you?|Good morning! Any plans?|Long time no see!|Do you have feelings?|Are you a human?|What do you like about {hobby}?|I love {food}. What about you?|I just came back from {city}.|I'm thinking about buying a {vehicle}. What do you think?|My {animal} won't eat. What should I do?
I've got {illness} and can't go to work. Any advice?|I want to become a {job}, but I'm not sure it's for me.|I'm nervous about my first day as a {job}.|Which is better, {food} or {food}?|Would you rather live in {country} or in {country}?|I feel so much {feeling} lately.|My friend {f} doesn't talk to me anymore.
Can you recommend a film about {person}?|I'm cooking {food} tonight. What goes well with it?|I have {ingredient} and {ingredient} in my kitchen. What can I cook?|My son wants to play the {instrument}. Is that a good idea?|I've never understood {science}. Is it hard?|Let's play a game about {animal}s.|Tell me a joke about {job}s.
Tell me something surprising about {country}.|Guess what, I saw a {animal} this morning!|How do I choose the right {clothes} for a wedding?|How can I save money on {stuff}?|How long does it take to learn {sport}?|I lost my {thing}. Where should I look first?|I can't decide between a {thing} and a {thing} for my {room}.
What would {person} say about the internet?|What's your opinion on {idea}?|What do you know about {city}?|Is {country} safe for travellers?|I'm {f}, a {job} from {city}.|It's my birthday and nobody remembered.|I failed my {science} exam.|I need help with my {device}; it makes a strange noise.|How should I prepare for a {sport} tournament?
What's the best way to remove {stuff} from {clothes}?|Is it bad to eat {food} every day?|How do I get my {animal} to listen to me?|When is the best time to visit {city}?|Should I be worried about {process}?|Can I keep a {animal} in a small flat?|What makes a good {job}?|Pretend you are a {job} and give me advice.""".replace("\n", "|").split("|")

CODE = """I have a list of {thing}s with prices. How do I sort it by price in {l}?|Write a {l} function that draws {k} winners from a list of names.|Write {l} code for a simple {sport} score board.|How do I read a file line by line in {l}?|Write a {l} class that models a {vehicle} with speed and position.
Write a {l} program that simulates a {device}.|Write a small {l} game about a {animal}.|What is wrong with using global variables in {l}?|How do I handle errors in {l}?|Explain {g} and show it in {l}.|Write a {l} script that downloads a web page and counts its words.|Can you show me how classes work in {l}, with a {animal} as the example?
Write a function in {l} that picks a random {animal} from a list.|Write a {l} function for {g}, with comments.|Write {g} in {l} without using any library.|Translate {g} from {l} to {l}.|How would you test {g}?|What is the time complexity of {g}?|Write an SQL query that lists all {job}s who live in {city}.|Design the tables of a database for a {room}.
Write the HTML and CSS of a page that sells {food}.|Write a JSON object that describes a {job} with name, age and skills.|Write a regular expression for a date, and explain it.|What is the difference between a list and a tuple?|What is recursion? Show an example in {l}.|What does a loop do? Explain it to a {job}.|How do I connect to a database in {l}?
Write a {l} function that converts kilometres to miles.|Write a {l} function that joins words into a line of at most 80 characters.|Write a {l} function that tells whether a year has 366 days.|Write a command-line tool in {l} that keeps a list of {food}.|Write unit tests for a function that adds two numbers in {l}.|How do I make a {l} program faster?
Write a {l} program that asks for a name and prints a greeting.|Write pseudocode for a {device}.|Explain what an API is and write a small example in {l}.|How can a {job} use {l} at work? Show some code.|Write a {l} function that takes a temperature and tells what to wear.|Write a {l} dictionary that maps {k} countries to their capitals and prints it.""".replace("\n", "|").split("|")

REWRITE = """Rewrite this so that it sounds friendlier: I want my {thing} back by Friday.|Make this sentence more formal: Hey, can you send me the {thing} asap?|Correct the mistakes: Yesterday me and {f} was going to the {room} for buy {food}.|Fix the spelling: I realy like {animal}s becuase they are beatiful.|Turn this into the past tense: {f} eats {food} and talks to the {job}.
Say this in fewer words: Due to the fact that the {vehicle} was late, we were not able to see {city}.|Translate into {T}: The {animal} sleeps in the {room}.|Translate into {T}: Where can I buy {food}?|Translate into {T}: My {job} likes {hobby}.|Give me another word for {feeling}.|Rewrite as a question: You can learn {sport} in {k} weeks.
Write this as a headline: A {job} from {city} found a {animal} in a {vehicle}.|Put these words in alphabetical order: {animal}, {food}, {thing}, {job}, {city}.|Which of these does not belong: {animal}, {animal}, {thing}, {animal}?|Make this less boring: We went to {city}. We ate {food}. It was nice.|Summarize: {person} was a famous figure whose ideas about {science} and {idea} shaped the time after {event}. Many people in {country} still read the letters today.
Complete the sentence: The best thing about {country} is|Complete the sentence: If I were a {animal}, I would|Change the {animal} into a {animal} in this sentence: The {animal} ran across the street and hid behind the {thing}.|Turn this into a list: For the trip we need {food}, {food}, a {thing}, {clothes} and a {device}.|Explain the saying in your own words: a {animal} in the hand is worth two in the bush.
Rewrite for a newspaper: Some people stole a {vehicle} in {city} last night, and a {job} saw them.|Shorten this for a text message: I am sorry, but because of {illness} I will not be able to come to the {sport} training on Thursday evening.|Is this sentence positive or negative? The {food} in this {room} was worse than I remembered.|Write the opposite: {f} hates {food} and never goes to {city}.
Extract the names and places: {f} met {person} in {city} before they went to {country} together.|Rewrite the sentence in the passive voice: The {job} repaired the {device}.|Rewrite this email politely: You sent the wrong {clothes}. Send the right ones now.|Paraphrase: People who know {feeling} rarely talk about {idea}.|Make a rhyme out of this: The {animal} sat on the {thing}.""".replace("\n", "|").split("|")

BEGIN = """How do {animal}s|How does {process}|How can a {job}|How many {animal}s|How long does|How is {stuff}|Why is {food}|Why did {person}|Why do {job}s|Why are {plant}s|What is the role of {process}|What is the best way to|What would happen if {star}|What do {job}s|What happened in {country}|What kind of {food}|What are the benefits of {hobby}
When did {event}|When should I|Where do {animal}s|Which {food}|Who discovered {stuff}|Can a {animal}|Can you explain how {device}s|Can you explain why {process}|Could you describe|Is it possible to|Is {food}|Do I need a {device}|Does {illness}|Are there any {animal}s|Explain how {science}|Explain the difference between {animal}s and|Explain why {stuff}
Describe the process of|Describe a time when a {job}|Compare the {country} of|Write a story about a {job} who|Write a poem about {feeling} that|Write a paragraph about how {science}|Write an article about {city} and|Write a {l} function that takes|Write a {l} program that|Create a plan for|Create a character who is a {job}|Design a {room} for|Give me advice on {sport}
Give an example of {idea}|I have a {animal} that|I want to cook {food}|I am a {job} and I|I need to explain {science}|I'm planning to visit {city}|My {device}|My {job}|Suppose a {vehicle}|If a {vehicle} travels|If I have {k} {thing}s|{f} has {k} {food}s|A {job} wants to|There are {k} {animal}s|List the {k} most important|List some {food}s that|Name a {animal} that
Imagine a world where {idea}|Imagine that {person}|Help me understand {process}|Help me plan|Tell me about the {body}|Tell me about the time {person}|Summarize the story of {event}|Discuss the impact of {event}|Discuss how {idea}|Analyze the effect of {process}|Identify the main cause of {illness}|Suggest a way to|Recommend a {room}|Outline the steps of|Provide an example of {process}""".replace("\n", "|").split("|")

OPENERS = "Please |Can you help me? |I have a question. |Hi! |Hello. |Quick question: |I'm curious. |For school: |I'm preparing a talk. |Be honest. |Imagine I know nothing about it. |Thanks for your help earlier. ".split("|")
CLOSERS = " Keep it short.| Answer in one paragraph.| Use simple words.| Answer in three sentences.| Please be detailed.| Give an example.| Use bullet points.| Explain your reasoning.| Make it easy to remember.| Write for an adult audience.| Write for children.| Thank you!| Be creative.| Not more than 100 words.| Start with the most important point.| Use a friendly tone.| Use headings.".split("|")


def number_problem(rng, field):
    """Sums in words, in other shapes than prompts.arithmetic has."""
    a, b, c = rng.randint(3, 60), rng.randint(2, 40), rng.randint(2, 12)
    thing, food, job = field("thing"), field("food"), field("job")
    one, two = rng.sample(FIRST, 2)
    return rng.choice([
        f"{one} wants to buy {c} {thing}s at {a} dollars and has {b * 10} dollars. Is that enough?", f"If {c} {job}s need {a} hours for a task, how long do {2 * c} {job}s need?",
        f"I sleep {c} hours a night. How many hours is that in {b} days?", f"What is {a} percent of {b * 10}, and how do I work it out?", f"{one} runs {a} km in {c} hours. What is the speed?",
        f"A recipe for {food} serves {c} people and needs {a * 10} grams of flour. How much do I need for {c * 2} people?", f"Explain how to add {a} and {b} without a calculator.", f"A {thing} costs {a} euros after a discount of {c * 5} percent. What did it cost before?",
        f"{one} is twice as old as {two}. Together they are {3 * c} years old. How old is each?", f"What is {a} squared minus {b}?", f"How do I solve x + {a} = {a + b}?", f"Solve for y: {c}y - {b} = {c * a - b}. Show your work.",
        f"A train leaves at {c}:15 and takes {a} minutes. When does it arrive?", f"My watch loses {c} seconds an hour. How late is it after {b} days?", f"What is the area of a circle with radius {c}?", f"What is the volume of a box of {a} by {b} by {c} cm?", f"Is {a * c + 1} a prime number? Explain.",
        f"There are {a} red and {b} blue balls in a bag. What is the chance of drawing a red one?", f"Write {a}/{a * c} in its simplest form.", f"Which is more: {c} dozens or {a} pieces?", f"{one} reads {b} pages a day. The book has {b * c} pages. How many days does it take?", f"What are the first {c} square numbers?",
        f"Split a bill of {a * 4} dollars between {c} friends, with a tip of 10 percent.", f"What is the median of {a}, {b}, {c}, {a + b} and {a + c}?", f"How do I turn {a} into a binary number?", f"Give me a word problem about {food} for a third grader, and solve it."])


FORMS = {"explain": EXPLAIN, "list": LIST, "story": STORY, "code": CODE, "write": WRITE, "chat": CHAT, "rewrite": REWRITE}
WEIGHTS = {"explain": 16, "list": 11, "story": 9, "code": 12, "write": 12, "chat": 10, "rewrite": 10, "maths": 6, "invented": 14}


class Fields:
    """Topics for the fields of a form; a field that occurs twice gets two topics."""

    def __init__(self, rng, topics):
        self.rng, self.topics = rng, topics

    def field(self, name):
        names, weights = self.topics.fields[name]
        return self.rng.choices(names, cum_weights=weights)[0]

    def fill(self, form):
        own = dict(f=lambda: self.rng.choice(FIRST), k=lambda: str(self.rng.randint(3, 10)), l=lambda: self.rng.choice(LANGS), T=lambda: self.rng.choice(TONGUES), g=lambda: self.rng.choice(ALGOS))
        parts = form.replace("}", "{").split("{")   # text, field, text, field, …
        return "".join(part if i % 2 == 0 else own[part]() if part in own else self.field(part) for i, part in enumerate(parts))


def first_turn(rng, fields):
    category = rng.choices(list(WEIGHTS), WEIGHTS.values())[0]
    if category == "invented":
        return category, {"invent": fields.fill(rng.choice(BEGIN))}
    if category == "maths":
        return category, number_problem(rng, fields.field)
    text = fields.fill(rng.choice(FORMS[category]))
    if category in ("explain", "list", "story", "write", "code"):
        if rng.random() < 0.3 and len(text.split()) > 5:
            words = text.split()
            return category, {"invent": " ".join(words[: rng.randint(3, len(words) - 2)])}
        text = rng.choice(OPENERS) * (rng.random() < 0.2) + text + rng.choice(CLOSERS) * (rng.random() < 0.3)
    return category, text


def conversation(rng, topics):
    """(category, turns); a turn is a text, or {"invent": beginning} for the model to complete."""
    category, first = first_turn(rng, Fields(rng, topics))
    turns = [first]
    while len(turns) < 3 and rng.random() < (0.35 if category == "chat" else 0.12):
        turns.append({"invent": rng.choice(["", "How", "What", "Can you", "Why", "I", "And"])} if rng.random() < 0.5 else rng.choice(FOLLOW))
    return category, turns

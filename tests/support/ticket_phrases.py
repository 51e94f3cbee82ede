"""Sentences of made-up support tickets, by topic, with slots in braces that `tickets` fills."""

GREETINGS = """
Hi
Hello
Hi there
Hello support team
Good morning
Hi team
Dear support
Hey
Good afternoon
To whom it may concern
Dear sir or madam
Hello again
"""

CLOSINGS = """
Thank you
Thanks
Thanks in advance
Please help
Thank you for your help
Kind regards
Best regards
Please advise
Please get back to me as soon as possible
I look forward to hearing from you
Many thanks
Please let me know what to do next
Thank you for your time
Any help would be appreciated
Hoping for a quick reply
I am still waiting for an answer
Please do not send me another automatic reply
Can someone please call me back
"""

GENERAL = """
I have been a customer for {number} years
This is the {ordinal} time I am writing to you
I already contacted you {when} and nobody answered
I have tried turning it off and on again
I have attached a screenshot
I have attached a photo of the {product}
My order number is in the subject
I spoke to {name} on the phone {when}
The chat told me to write an email instead
I am very disappointed with the service
I really like the {product} but this is frustrating
It worked fine until {when}
I followed the steps on your website but it did not help
I could not find an answer in the help center
Is there a phone number I can call
Could you please look into this
Please escalate this to a manager
If this is not fixed by {day} I will cancel my account
I would like to make a complaint
It says please try again later
It says something went wrong
I have the same problem on my phone and on my laptop
My colleague has the same problem
Nothing has changed since my last message
How long will this take
"""

TOPICS = {
    "login": """
I can't log in to my account
I forgot my password
I did not receive the password reset email
The password reset link has expired
The password reset link does not work
My account has been locked
My account is locked after too many attempts
I no longer have access to my old email address
I want to change the email address of my account
I lost my phone and can't get the verification code
The verification code never arrives
The verification code is always invalid
How do I turn off two factor authentication
It says my password is incorrect but I am sure it is right
I am logged out every few minutes
I created two accounts by mistake
Please merge my two accounts
Someone has logged in to my account from {place}
I think my account has been hacked
How do I reset my password
I can't sign in with my {brand} account
The login page is blank
Please unlock my account
""",
    "delivery": """
My order has not arrived yet
Where is my order
My package was supposed to arrive on {day}
The tracking number does not work
The tracking page has not been updated since {day}
It says delivered but I did not receive anything
The package was left at the wrong address
My neighbour did not receive the package either
I need to change the delivery address
Can I change the delivery date
I ordered {number} {product}s and only received one
The box was open when it arrived
The driver did not ring the bell
Do you deliver to {place}
How long does delivery to {place} take
The package was returned to sender
I received the wrong {product}
I received someone else's order
The delivery is {number} days late
Please send the package again
I paid for express delivery
Can I pick up my order at a store in {place}
The {product} was missing from the package
""",
    "refund": """
I would like a refund
I want my money back
When will I get my refund
I have not received my refund yet
I returned the {product} {when} and have not heard back
How do I return the {product}
I would like to return my order
Please send me a return label
The return label does not print
I was told the refund takes {number} business days
The refund was less than I paid
I changed my mind and do not need the {product} any more
Can I exchange the {product} for a different color
Can I exchange it for a larger size
The {product} does not fit
It is not what I expected from the picture
You refunded the wrong card
Is it possible to get store credit instead of a refund
I cancelled my order but I was still charged
Can I return it without the original packaging
I would like to exchange the {product}
""",
    "billing": """
I was charged twice
I was charged twice for the same order
I was charged {amount} that I do not recognise
My card was declined
My payment did not go through
The payment page does not load
I need an invoice for my order
Please send me a copy of the invoice
The invoice has the wrong address
There is a mistake on my last bill
My bill is higher than last month
I want to change my payment method
How do I update my credit card
My credit card has expired
The discount code does not work
The discount was not applied to my order
Can I still use the discount code
Why was I charged {amount} this month
I never agreed to the new price
Can I pay by bank transfer
Do you accept {brand} gift cards
My gift card balance is wrong
The total is different from the price in the app
I need a receipt for my tax return
""",
    "subscription": """
I want to cancel my subscription
How do I cancel my subscription
I cancelled my subscription but I was charged again
Please cancel my subscription right away
My subscription was renewed without my permission
I would like to upgrade to the {plan} plan
I would like to downgrade to the {plan} plan
What is the difference between the {plan} plan and the {plan} plan
Can I pause my subscription for {number} months
My free trial ended early
I did not know that the free trial would renew
How many people can use the {plan} plan
Can I share my subscription with my family
My subscription shows as expired but I have paid
I upgraded to the {plan} plan but nothing has changed
Please delete my account and all my data
I can't find the button to cancel
Can I get the student discount
Please stop sending me emails
I want to unsubscribe from your newsletter
""",
    "app": """
The app keeps crashing
The app crashes when I open it
The app does not open on my {device}
The app is very slow since the last update
The last update broke everything
I can't install the app on my {device}
The app does not send notifications
I get too many notifications
The search does not find anything
My photos are gone
All my data is gone after the update
The app does not sync with my {device}
It does not work in {browser}
The page does not load in {browser}
I get an error message when I click on save
I get an error message when I try to check out
The button does not do anything
The video does not play
There is no sound
The map shows the wrong location
Please add a dark mode
How do I change the language
How do I export my data
The screen stays white
The app drains my battery
Error code {number} {number} {number}
""",
    "device": """
The {product} does not turn on
The {product} stopped working
The {product} stopped working after {number} weeks
The {product} does not charge any more
The battery does not last longer than {number} hours
The screen of my {product} is broken
The {product} arrived damaged
The {product} makes a strange noise
The {product} does not connect to the wifi
The wifi connection keeps dropping
It does not connect to my {device}
The red light is blinking
The green light does not come on
The {product} gets very hot
Is my {product} still under warranty
How long is the warranty
I would like a replacement
Please send me a new {product}
Where can I buy a spare {part}
The {part} of my {product} is broken
The {part} is missing
How do I reset the {product}
How do I clean the {product}
How do I set up the {product}
The manual is only in another language
Can you repair it
The {product} is not recognised by my {device}
""",
    "shop": """
When will the {product} be back in stock
Is the {product} available in {color}
Do you have the {product} in a smaller size
Does the {product} work with my {device}
What is the price of the {product}
Can I order the {product} by phone
Can I cancel my order
I ordered the wrong {product}
I would like to add a {product} to my order
Please change the color of my order to {color}
My order was cancelled and I don't know why
I did not receive a confirmation email
How do I write a review
Do you have a store in {place}
What are your opening hours
Is the {product} made in {place}
Do you offer a discount for large orders
Can you reserve a {product} for me
""",
}

SLOTS = {
    "product": "phone case|headphones|router|charger|tablet|coffee machine|speaker|keyboard|watch|"
    "camera|vacuum cleaner|toothbrush|monitor|jacket|backpack|lamp|printer|mouse|kettle|chair",
    "device": "phone|laptop|iphone|computer|tv|tablet|android phone|macbook|car|smart watch",
    "browser": "chrome|safari|firefox|edge",
    "part": "battery|cable|screen|lid|remote control|power supply|filter|strap|handle|screw",
    "color": "black|white|blue|red|green|grey|pink",
    "plan": "premium|family|basic|pro|business|student",
    "brand": "google|apple|facebook|amazon|paypal",
    "place": "germany|france|london|canada|the netherlands|spain|new york|ireland|berlin|australia|"
    "sweden|chicago|paris|italy",
    "day": "monday|friday|tuesday|thursday|wednesday|saturday|sunday",
    "when": "yesterday|last week|two weeks ago|this morning|last month|on monday|three days ago|"
    "a month ago|on friday|last night",
    "number": "two|three|five|four|ten|six|seven|twelve|eight|nine",
    "ordinal": "second|third|fourth|fifth",
    "amount": "twenty dollars|ten euros|fifty dollars|five euros|ninety nine dollars",
    "name": "anna|david|maria|james|sarah|michael|laura|peter|julia|thomas",
}
